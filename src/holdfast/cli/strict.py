"""What a user has said and nobody would hear: it is refused before a command runs.

**Rules.** A variable of the environment that begins with ``HOLDFAST_`` and names nothing is refused
as a word of a settings file is, with the nearest name. Of an option that counts once, a second one
is refused: the first would be lost without a word. A flag may be said twice.

Variables that Kubernetes sets for a service named ``holdfast...`` in the same namespace are
nobody's setting and are passed by.

**Strategy.** Only the command that runs is loaded, so its own options are compared exactly, and for
the variables of other commands only the command's name. Names of all options are looked up where
something is refused.

References: Kubernetes, "Accessing the Service", environment variables; docker links for the form of
the ``_PORT`` variables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.cli.settings import PREFIX, variables_of
from holdfast.errors import ConfigError, nearest

OTHERS = frozenset(
    f"{PREFIX}_{name}"
    for name in ("CACHE", "CLASS_ARCHIVE", "CONFIG", "IVY_SETTINGS", "JARS", "SPARK_CONNECTOR")
)
"""Variables that are no command's option: the settings file, where jars come from, Java's start."""

_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")


def check_environment(
    loaded: Mapping[str, Any],
    commands: Sequence[str],
    environment: Mapping[str, str],
    all_variables: Callable[[], Sequence[str]],
) -> None:
    """Refuse variables that name nothing.

    Parameters
    ----------
    loaded : mapping of str to click.Command
        The commands that are loaded, among them the one that runs.
    commands : sequence of str
        Names of all commands.
    environment : mapping of str to str
        Of this process.
    all_variables : callable
        The variables of every command's options; asked where a name has to be suggested.

    Raises
    ------
    ConfigError
    """
    own = {v for name, command in loaded.items() for v in variables_of(name, command)}
    longest_first = sorted(commands, key=len, reverse=True)
    for variable, value in sorted(environment.items()):
        if not variable.startswith(f"{PREFIX}_") or variable in OTHERS or variable in own:
            continue
        if _is_of_a_service(variable, value):
            continue
        owner = next((n for n in longest_first if variable.startswith(_prefix(n))), None)
        if owner is not None and owner not in loaded:
            continue  # of a command that does not run
        hint = nearest(variable, [*all_variables(), *sorted(OTHERS)])
        raise ConfigError(f"the environment: {variable} is no option of any command{hint}")


def refuse_repeats(command: Any) -> None:
    """Let a command, and those under it, refuse a second one of an option that counts once."""
    for below in getattr(command, "commands", {}).values():
        refuse_repeats(below)
    parse = command.parse_args

    def parse_once(context: Any, arguments: list[str]) -> list[str]:
        if not context.resilient_parsing:
            _check_repeats(command, context, arguments)
        rest: list[str] = parse(context, arguments)
        return rest

    command.parse_args = parse_once


def _check_repeats(command: Any, context: Any, arguments: Sequence[str]) -> None:
    _, _, order = command.make_parser(context).parse_args(args=list(arguments))
    for parameter, n_times in Counter(order).items():
        counts_once = parameter.param_type_name == "option" and not (
            parameter.multiple or parameter.is_flag or parameter.count
        )
        if counts_once and n_times > 1:
            flag = max(parameter.opts, key=len)
            raise ConfigError(f"{flag} is given {n_times} times, and only one of them would count")


def _prefix(command: str) -> str:
    return f"{PREFIX}_{command}_".upper().replace("-", "_")


def _is_of_a_service(variable: str, value: str) -> bool:
    is_port = variable.endswith("_PORT") and "://" in value
    return is_port or _SERVICE.search(variable) is not None
