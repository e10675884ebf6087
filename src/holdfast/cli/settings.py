"""Settings from ``holdfast.toml``, the environment and flags, in that order: the later one wins.

**Rules.** A file's words are the flags' names without dashes in front. An unknown section or word
is refused with the nearest known one. ``HOLDFAST_<COMMAND>_<OPTION>`` is an option in the
environment, with the flag's name.

Which file counts is told in :mod:`holdfast.cli.settings_files`.

**Strategy.** Click knows the order already: the file becomes its ``default_map``, and every option
gets its variable. ``effective`` repeats that order for ``holdfast config show``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.settings_files import GUARDED, SettingsFile
from holdfast.errors import ConfigError, nearest

PREFIX = "HOLDFAST"
EVERYWHERE = "defaults"
"""Section whose words count for every command that has such an option and takes that value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionValue:
    """One option of one command, its value and where that comes from."""

    command: str
    option: str
    value: Any
    source: str
    environment: str


def read_file(path: Path) -> dict[str, dict[str, Any]]:
    """Sections of a settings file.

    Raises
    ------
    ConfigError
        If it is not TOML, or holds a word outside of a section.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for word, value in document.items():
        if not isinstance(value, dict):
            raise ConfigError(
                f"{path}: {word} stands outside of a section; "
                f"put it under [{EVERYWHERE}] or under a command"
            )
    return document


def default_map(group: Any, path: Path) -> dict[str, dict[str, Any]]:
    """Defaults of every command, from a settings file.

    Parameters
    ----------
    group : click.Group
        Holds the commands.
    path : Path
        Settings file.

    Raises
    ------
    ConfigError
        For a section that is no command, or a word that is no option of it.
    """
    document = read_file(path)
    commands = {name: _options(command) for name, command in group.commands.items()}
    for section in document:
        if section != EVERYWHERE and section not in commands:
            raise ConfigError(f"{path}: no command {_near(section, [*commands, EVERYWHERE])}")
    everywhere = document.get(EVERYWHERE, {})
    for word, value in everywhere.items():
        if not any(word in options for options in commands.values()):
            known = sorted({option for options in commands.values() for option in options})
            raise ConfigError(f"{path}: [{EVERYWHERE}] has no option {_near(word, known)}")
        if not any(_takes(command, word, value) for command in group.commands.values()):
            raise ConfigError(f"{path}: [{EVERYWHERE}] {word}: no command takes {value!r}")
    found: dict[str, dict[str, Any]] = {}
    for name, options in commands.items():
        own = document.get(name, {})
        for word in own:
            if word not in options:
                raise ConfigError(f"{path}: [{name}] has no option {_near(word, [*options])}")
        command = group.commands[name]
        merged = {**{w: v for w, v in everywhere.items() if _takes(command, w, v)}, **own}
        if merged:
            found[name] = {options[word]: value for word, value in merged.items()}
    return found


def effective(group: Any, path: Path | None) -> Iterator[OptionValue]:
    """Every option of every command as it would be used without flags."""
    from_file = default_map(group, path) if path is not None else {}
    for name, command in group.commands.items():
        for option, parameter in _options(command).items():
            variable = _variable(name, option)
            declared = next(p for p in command.params if p.name == parameter)
            value, source = declared.default, "default"
            if parameter in from_file.get(name, {}):
                value, source = from_file[name][parameter], str(path)
            if os.environ.get(variable):
                value, source = os.environ[variable], variable
            if callable(value):
                value = value()
            yield OptionValue(
                command=name, option=option, value=value, source=source, environment=variable
            )


def note_from_above(
    group: Any, found: SettingsFile, command: str, arguments: Sequence[str]
) -> str | None:
    """What a file above the project sets for a command that somebody else could profit from.

    Parameters
    ----------
    group : click.Group
        Holds the commands.
    found : SettingsFile
        The file that counts.
    command : str
        Name of the command that runs.
    arguments : sequence of str
        As given: an option among them, or in the environment, does not come from the file.

    Returns
    -------
    str or None
        One line; None where there is nothing to tell.
    """
    if found.path is None or not found.above or command not in group.commands:
        return None
    options = _options(group.commands[command])
    flags = {p.name: {*p.opts} for p in group.commands[command].params}
    given = {word.partition("=")[0] for word in arguments}
    values = default_map(group, found.path).get(command, {})
    told = [
        f"{GUARDED[option]} (--{option} {values[parameter]})"
        for option, parameter in options.items()
        if option in GUARDED
        and parameter in values
        and not given & flags[parameter]
        and not os.environ.get(_variable(command, option))
    ]
    if not told:
        return None
    return f"{found.path}, above the project {found.project}, sets {' and '.join(told)}"


def _options(command: Any) -> dict[str, str]:
    """Flag without dashes in front -> parameter, of one command."""
    found: dict[str, str] = {}
    for parameter in command.params:
        long = [flag for flag in parameter.opts if flag.startswith("--")]
        if long and parameter.name != "help":
            found[long[0].removeprefix("--")] = parameter.name
    return found


def _takes(command: Any, option: str, value: Any) -> bool:
    """Whether a command has such an option and takes this value."""
    name = _options(command).get(option)
    try:
        for parameter in command.params:
            if parameter.name == name:
                parameter.process_value(None, value)
                return True
    except typer.BadParameter:
        pass
    return False


def _near(word: str, known: list[str]) -> str:
    return f"{word!r}{nearest(repr(word), map(repr, known))}"


def variables_of(name: str, command: Any) -> Iterator[str]:
    """Names of the variables of one command's options."""
    return (_variable(name, option) for option in _options(command))


def _variable(command: str, option: str) -> str:
    return f"{PREFIX}_{command}_{option}".upper().replace("-", "_")


def for_click(group: Any, path: Path | None) -> Mapping[str, Any]:
    """Give every option its variable, and return the context settings that hold the file."""
    for name, command in group.commands.items():
        variables = {p: _variable(name, option) for option, p in _options(command).items()}
        for parameter in command.params:
            if parameter.name in variables and parameter.envvar is None:
                parameter.envvar = variables[parameter.name]
                parameter.show_envvar = False
    return {"default_map": default_map(group, path) if path is not None else {}}
