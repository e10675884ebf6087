"""Options that commands share: assignors and policies, an assignor's options, those of the designs.

**Rules.** ``module:function`` is imported as ``python -m`` would, from the current folder first.
It names a result of :func:`holdfast.assignor`, or a function of members, topics and claims.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.declared import Option
from holdfast.cli.durations import format_duration
from holdfast.core.assignors.registry import Named, find
from holdfast.core.machine.policy import DEFAULTS, PolicyInfo
from holdfast.errors import ConfigError

DELAY, INTERVAL = format_duration(DEFAULTS.delay_ms), format_duration(DEFAULTS.interval_ms)
STABILIZATION = format_duration(DEFAULTS.stabilization_ms)

Batch = Annotated[
    int, Option("--batch", help="Design III: moves per round for each gaining member.")
]
Interval = Annotated[
    str, Option("--interval", metavar="DURATION", help="Design III: time between batches.")
]


AssignorOptions = Annotated[
    list[str] | None,
    Option(
        "--option", metavar="NAME=VALUE", help="Option of the assignor, value as JSON; repeatable."
    ),
]


def split_names(text: str, option: str) -> list[str]:
    """Return the names of an option that takes several, each once; ConfigError without one."""
    if not (names := [name for part in text.split(",") if (name := part.strip())]):
        raise ConfigError(
            f"{option} {text!r}: expected names of assignors, policies or delays, such as a,b"
        )
    return list(dict.fromkeys(names))


def parse_assignor(text: str) -> Named:
    """Return an assignor of the registry, or the user's own ``module:function``.

    Raise ConfigError if the name is unknown, or names no assignor.
    """
    if ":" not in text:
        return find(text).name
    import_from_here()
    # A command with a name of the registry does not load what members need.
    from holdfast.members.config.own_assignors import resolve_for_command

    return resolve_for_command(text)


def parse_policy(text: str) -> PolicyInfo:
    """Return the user's own policy, ``module:function``; raise ConfigError if it is none."""
    import_from_here()
    from holdfast.members.config.own_assignors import policy_named_by

    return policy_named_by(text)


def import_from_here() -> None:
    """Import modules from the current folder first, as ``python -m`` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def parse_option(text: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` of ``--option``; raise ConfigError for any other text."""
    name, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"--option {text!r}: expected NAME=VALUE, such as max_skew=1")
    try:
        return name.strip().replace("-", "_"), json.loads(value)
    except (ValueError, RecursionError):  # a text, or no value that any option takes
        return name.strip().replace("-", "_"), value
