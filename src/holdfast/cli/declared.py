"""Turn a command that its function declares into a Click command.

**Rules.** An option is declared once: in the signature of its command's function, or in
:mod:`holdfast.cli.options` if several commands have it. Click's name of an option is its first
long flag, so a settings file and an environment variable use the name of the flag. An option that
counts once is refused if it is given twice: the first value would be lost silently. An error about
an unknown option suggests one of the command: similar spelling alone gives no suggestion, since
``--port`` is not a misspelt ``--input``; a word that another command, Kafka's tools or a Kafka
client has for the same thing leads to the option of this command.

**Strategy.** A parameter is ``Annotated[type, Option(...)]`` or ``Annotated[type,
Argument(...)]``. The type says how a value is read: a closed set is a choice, ``list`` is a
repeatable option, ``bool`` is a flag, a ``Path`` is a local path. A parameter whose type is a
dataclass represents the options that are its fields.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import click

from holdfast.errors import ConfigError
from holdfast.fleet.tables.storage.paths import local_path

if not hasattr(click.ParamType, "__class_getitem__"):
    # Members and the library need no Click, and frameworks in the same environment limit its
    # version.
    sys.stderr.write("error: the holdfast command needs Click 8.5 or newer: pip install -U click\n")
    raise SystemExit(2)

Run = Callable[..., Any]
CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "show_default": True,
    "max_content_width": 100,
}


class Declared:
    """Declaration of one parameter in a signature.

    Parameters
    ----------
    flags : str
        Flags as people type them; none for an argument.
    help : str
        One line of help.
    metavar : str, optional
        Placeholder of a value in the help.
    min : int, optional
        The least accepted number.
    parser : callable, optional
        Function from the text to the value, if the type does not say it.
    usual : str
        Text to print if the argument is missing.
    """

    def __init__(
        self,
        *flags: str,
        help: str = "",  # noqa: A002 (Click's word)
        metavar: str | None = None,
        min: int | None = None,  # noqa: A002 (Click's word)
        parser: Callable[[str], Any] | None = None,
        usual: str = "",
    ):
        self.flags = flags
        self.help = help
        self.metavar = metavar
        self.min = min
        self.parser = parser
        self.usual = usual


class Option(Declared):
    """An option: its flags and its help."""


class Argument(Declared):
    """A positional argument."""


class _Parsed(click.ParamType[Any]):
    """What a function makes of a text."""

    envvar_list_splitter = os.path.pathsep  # only paths may occur several times

    def __init__(self, parser: Callable[[str], Any], name: str = "text", usual: str = ""):
        self.name, self._parser, self._usual = name, parser, usual

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return self._parser(str(value))

    def get_missing_message(self, param: Any, ctx: Any = None) -> str | None:
        return self._usual or None


class _AtLeast(click.IntRange):
    """A whole number that is not too small."""

    def _describe_range(self) -> str:
        return f"{self.min} or more"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"found {value}, expected {self.min} or more", param, ctx)


class _ChoiceOf(click.Choice[str]):
    """A member of a closed set, by its value."""

    def __init__(self, members: type[StrEnum]):
        super().__init__([member.value for member in members])
        self._members = members

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return self._members(super().convert(value, param, ctx))


class OneOfEach(click.Command):
    """A command that refuses a second one of an option that counts once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line, and refuse a second option where one counts."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        flags = [flag for one in self.get_params(ctx) for flag in one.opts]
        try:
            _, left, order = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeats(order)
            if left and not {"--help", "-h"} & {*args}:
                raise refused_words(left, flags, ctx)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise refused_option(error.option_name, flags, ctx) from error


def _refuse_repeats(given: list[click.Parameter]) -> None:
    for parameter, n_times in Counter(given).items():
        counts_once = isinstance(parameter, click.Option) and not (
            parameter.multiple or parameter.is_flag or parameter.count
        )
        if counts_once and n_times > 1:
            flag = max(parameter.opts, key=len)
            raise ConfigError(f"{flag} is given {n_times} times; only one value would count")


def command_of(name: str, run: Run, epilog: str) -> OneOfEach:
    """Return the command that calls a function with the values of its command line."""
    made = _parameters(run)

    def call(**given: Any) -> Any:
        return _called(run, {own: given[str(one.name)] for own, one in made.items()})

    return OneOfEach(
        name,
        params=list(made.values()),
        callback=call,
        help=inspect.getdoc(run),
        epilog=epilog,
        context_settings=CONTEXT,
    )


def group_of(name: str, runs: Mapping[str, Run], summary: str, epilog: str) -> click.Group:
    """Return a command with subcommands, and its help."""
    return click.Group(
        name,
        commands=[command_of(own, run, epilog) for own, run in runs.items()],
        help=summary,
        epilog=epilog,
        no_args_is_help=True,
        context_settings=CONTEXT,
    )


def _parameters(of: Run) -> dict[str, click.Parameter]:
    """Return the Click parameters of a function or a dataclass, by its own names."""
    found: dict[str, click.Parameter] = {}
    hints = get_type_hints(of, include_extras=True)
    for parameter in inspect.signature(of).parameters.values():
        hint = hints[parameter.name]
        if _is_several(hint):
            found |= _parameters(hint)
        else:
            found[parameter.name] = _parameter(hint, parameter)
    return found


def _called(of: Run, given: Mapping[str, Any]) -> Any:
    """Call a function or a dataclass with values by its own names."""
    hints = get_type_hints(of, include_extras=True)
    names = inspect.signature(of).parameters
    return of(**{n: _called(h, given) if _is_several(h := hints[n]) else given[n] for n in names})


def _is_several(hint: Any) -> bool:
    """Return whether a parameter represents several options."""
    return is_dataclass(hint)


def _parameter(hint: Any, parameter: inspect.Parameter) -> click.Parameter:
    kind, declared = get_args(hint)[:2]
    if isinstance(kind, UnionType):
        (kind,) = set(get_args(kind)) - {NoneType}
    many = get_origin(kind) is list
    if many:
        (kind,) = get_args(kind)
    more: dict[str, Any] = {"type": _type(kind, declared), "metavar": declared.metavar}
    if declared.metavar is None and kind in (int, float):
        more["metavar"] = "N"  # a set of words is listed
    if parameter.default is inspect.Parameter.empty:
        more["required"] = True
    else:
        default = parameter.default
        more["default"] = default.value if isinstance(default, StrEnum) else default
    if isinstance(declared, Argument):
        return click.Argument([parameter.name], help=declared.help, nargs=-1 if many else 1, **more)
    if kind is bool:
        more |= {"type": None, "is_flag": True}
    return click.Option(declared.flags, help=declared.help, multiple=many, **more)


def _type(kind: Any, declared: Declared) -> Any:
    """Return the Click type that reads a value."""
    if declared.parser is not None or declared.usual:
        return _Parsed(declared.parser or kind, usual=declared.usual)
    if declared.min is not None:
        return _AtLeast(min=declared.min)
    if issubclass(kind, StrEnum):
        return _ChoiceOf(kind)
    # A URL of remote storage is not a path of this machine, and is refused.
    return _Parsed(local_path, "file") if issubclass(kind, Path) else kind


SAME: Final = {
    "port": ("--port", "--listen"),
    "p": ("--port", "--listen"),
    "host": ("--listen", "--bootstrap-server"),
    "address": ("--listen", "--bootstrap-server"),
    "listen": ("--listen", "--port"),
    **dict.fromkeys(
        ("bootstrap", "bootstrap-servers", "broker", "broker-list", "server"),
        ("--bootstrap-server",),
    ),
    "brokers": ("--brokers", "--bootstrap-server"),
    "zookeeper": ("--bootstrap-server",),
    **dict.fromkeys(("config", "consumer.config", "properties"), ("--command-config",)),
    **dict.fromkeys(("consumer-group", "group-id", "groups", "g"), ("--group",)),
    **dict.fromkeys(("topics", "t"), ("--topic",)),
    **dict.fromkeys(("strategy", "partition-assignment-strategy"), ("--assignor", "--from")),
    **dict.fromkeys(("tables", "dump", "folder", "file", "i"), ("--input", "--output")),
    **dict.fromkeys(("out", "o"), ("--output",)),
    **dict.fromkeys(("json", "csv", "jsonl"), ("--format",)),
    **dict.fromkeys(("interval", "watch", "follow"), ("--every", "--interval")),
    "all": ("--all-groups",),
}
"""What people type -> options that mean the same; the first one that a command has counts."""

_NEAR: Final = 0.7
_SERVERS: Final = re.compile(r"[\w.\-\[\]]+:\d+(,[\w.\-\[\]]+:\d+)*")


def refused_option(typed: str, flags: Iterable[str], context: click.Context) -> click.UsageError:
    """Return the error about an unknown option, with its likely meaning."""
    known = {flag.lstrip("-"): flag for flag in flags if flag.startswith("--")}
    word = typed.lstrip("-")
    same = [flag for flag in SAME.get(word, ()) if flag.lstrip("-") in known][:1]
    meant = same or [known[name] for name in get_close_matches(word, known, 3, _NEAR)]
    hint = f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""
    return click.NoSuchOption(typed, f"No such option {typed!r}.{hint}", ctx=context)


def refused_words(
    words: Sequence[str], flags: Sequence[str], context: click.Context
) -> click.UsageError:
    """Return the error about words without an option, with an option for the first of them."""
    meant = " or ".join(f"{flag} {words[0]}" for flag in _flags_of(words[0], flags))
    hint = f": did you mean {meant}?" if meant else ""
    noun = "argument" if len(words) == 1 else "arguments"
    return click.UsageError(f"Got unexpected extra {noun} ({' '.join(words)}){hint}", context)


def _flags_of(word: str, flags: Sequence[str]) -> list[str]:
    """Return options of a command that a word without an option may belong to."""
    if word.isdigit():
        meant = ["--port"]
    elif _SERVERS.fullmatch(word):
        meant = ["-b"]
    elif Path(word).exists() or "/" in word:
        meant = ["--input"]
    else:
        meant = ["-b", "--input"]
    return [flag for flag in meant if flag in flags]
