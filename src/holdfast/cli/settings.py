"""Settings from ``holdfast.toml``, the environment and flags, in that order: the later one wins.

**Rules.** One file counts: the one that ``HOLDFAST_CONFIG`` names, else ``holdfast.toml`` in the
current folder, else the user's own. Its sections are commands, its keys are flags without leading
dashes. ``HOLDFAST_<COMMAND>_<OPTION>`` is an option in the environment. An unknown section, key or
variable is refused with the nearest name; a command ignores settings of other commands.

Variables that Kubernetes sets for a service named ``holdfast...`` in the same namespace are not
settings and are ignored.

**Strategy.** Click does it: the file is its ``default_map``, ``PREFIX`` its
``auto_envvar_prefix``, and it knows which of them gave a value. Only the command that runs is
loaded, so only its section and its variables are compared word for word; ``holdfast config show``
loads all commands and compares everything.

References: Kubernetes, "Accessing the Service", environment variables; docker links for the form of
the ``_PORT`` variables.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from holdfast.cli.options import shared_options
from holdfast.errors import ConfigError, nearest

PREFIX: Final = "HOLDFAST"
FILE_NAME: Final = "holdfast.toml"
NAMED_BY: Final = "HOLDFAST_CONFIG"
EVERYWHERE: Final = "defaults"
"""Section whose keys count for every command that has such an option."""

OTHERS: Final = frozenset(
    f"{PREFIX}_{name}" for name in ("CACHE", "CONFIG", "IVY_SETTINGS", "JARS", "SPARK_CONNECTOR")
)
"""Variables that are not an option of a command: the settings file, the source of jars."""

_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")


def find_file() -> Path | None:
    """Find the file that counts, or None; ConfigError where ``HOLDFAST_CONFIG`` names none."""
    named = os.environ.get(NAMED_BY)
    if named:
        if not Path(named).is_file():
            raise ConfigError(f"{NAMED_BY}: {named} is not a file")
        return Path(named)
    paths = (Path(FILE_NAME), Path(click.get_app_dir("holdfast"), FILE_NAME))
    # A file behind a folder that is closed to us is none.
    return next(filter(os.path.isfile, paths), None)


def read_file(path: Path) -> dict[str, dict[str, Any]]:
    """Return a file's sections; raise ConfigError for wrong TOML or a key outside a section."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for word, value in document.items():
        if not isinstance(value, dict):
            raise ConfigError(
                f"{path}: {word} is outside of a section; "
                f"put it under [{EVERYWHERE}] or under a command"
            )
    return document


def default_map(
    name: str, command: click.Command, names: Sequence[str], path: Path | None
) -> dict[str, Any]:
    """Return the defaults of one command from a settings file, as Click takes them.

    Raise ConfigError for a section that is no command, or a key that is no option of its command.
    """
    if path is None:
        return {}
    document = read_file(path)
    for section in document:
        if section not in {*names, EVERYWHERE}:
            raise ConfigError(f"{path}: no command {_near(section, [*names, EVERYWHERE])}")
    everywhere, shared = document.get(EVERYWHERE, {}), shared_options()
    for word in everywhere:
        if word not in shared:
            raise ConfigError(f"{path}: [{EVERYWHERE}] has no option {_near(word, shared)}")
    return {name: _section(path, name, command, everywhere, document.get(name, {}))}


def _section(
    path: Path, name: str, command: click.Command, everywhere: Mapping[str, Any], own: Any
) -> dict[str, Any]:
    if isinstance(command, click.Group):
        _refuse_unknown(path, name, "command", own, [*command.commands])
        return {
            word: _section(path, f"{name}.{word}", one, everywhere, own.get(word, {}))
            for word, one in command.commands.items()
        }
    options = {_word(option): str(option.name) for option in _options(command)}
    _refuse_unknown(path, name, "option", own, [*options])
    chosen = {word: value for word, value in everywhere.items() if word in options} | own
    return {options[word]: value for word, value in chosen.items()}


def _refuse_unknown(path: Path, name: str, kind: str, own: Any, known: Sequence[str]) -> None:
    if not isinstance(own, dict):
        raise ConfigError(
            f"{path}: {name} is a command; its options belong in a section of its own"
        )
    for word in own:
        if word not in known:
            raise ConfigError(f"{path}: [{name}] has no {kind} {_near(word, known)}")


def _near(word: str, known: Sequence[str]) -> str:
    return f"{word!r}{nearest(repr(word), map(repr, known))}"


def check_environment(
    name: str,
    command: click.Command,
    names: Sequence[str],
    environment: Mapping[str, str],
    all_variables: Callable[[], Sequence[str]],
) -> None:
    """Refuse variables that name nothing, with a ConfigError.

    ``name`` is the command that runs, or empty; ``all_variables`` is called if a name has to be
    suggested.
    """
    own = set(variables_of(name, command))
    longest_first = sorted(names, key=len, reverse=True)
    for variable, value in sorted(environment.items()):
        if not variable.startswith(f"{PREFIX}_") or variable in OTHERS or variable in own:
            continue
        if _SERVICE.search(variable) or (variable.endswith("_PORT") and "://" in value):
            continue  # of a service of Kubernetes
        owner = next((n for n in longest_first if variable.startswith(_variable(n, ""))), name)
        if owner != name:
            continue  # of a command that does not run
        hint = nearest(variable, [*all_variables(), *sorted(OTHERS)])
        raise ConfigError(f"the environment: {variable} is not an option of any command{hint}")


def variables_of(name: str, command: click.Command) -> Iterator[str]:
    """Yield the variable names of the options of one command and of its subcommands."""
    for own, one in _leaves(name, command):
        yield from (_variable(own, str(option.name)) for option in _options(one))


def effective(
    name: str, command: click.Command, values: Mapping[str, Any], path: Path | None
) -> Iterator[dict[str, Any]]:
    """Yield every option of a command as it would be used without flags, with its origin."""
    root = click.Context(
        click.Group("holdfast"), auto_envvar_prefix=PREFIX, default_map=dict(values)
    )
    for own, one in _leaves(name, command):
        context = root
        for word in own.split():
            context = click.Context(one, parent=context, info_name=word)
        for option in _options(one):
            value, source = option.consume_value(context, {})
            variable = _variable(own, str(option.name))
            sources = {
                ParameterSource.ENVIRONMENT: variable,
                ParameterSource.DEFAULT_MAP: str(path),
            }
            yield {
                "command": own,
                "option": _word(option),
                "value": value,
                "source": sources.get(source, "default"),
                "environment": variable,
            }


def where_from(error: click.ClickException, path: Path | None) -> str:
    """Return the origin of a refused value; empty for a flag."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return ""
    source = error.ctx.get_parameter_source(str(error.param.name))
    if source is ParameterSource.DEFAULT_MAP:
        return f"{path} says so"
    if source is ParameterSource.ENVIRONMENT:
        command = error.ctx.command_path.partition(" ")[2]
        return f"{_variable(command, str(error.param.name))} says so"
    return ""


def _leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, or its subcommands, with their names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word, one in command.commands.items():
        yield from _leaves(f"{name} {word}", one)


def _options(command: click.Command) -> Iterator[click.Option]:
    return (one for one in command.params if isinstance(one, click.Option))


def _word(option: click.Option) -> str:
    """Return the key of an option in a settings file: its flag, without leading dashes."""
    return str(option.name).replace("_", "-")


def _variable(command: str, option: str) -> str:
    return re.sub(r"[ -]", "_", f"{PREFIX}_{command}_{option}".upper())
