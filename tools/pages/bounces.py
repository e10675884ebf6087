"""The tables of docs/measured/bounce.md: the kept measurements of ``bench/bounce.py``."""

from __future__ import annotations

from typing import Any

from tools.measured import kept
from tools.pages.tables import table

COMMANDS = {
    "python bench/bounce.py --restore 0.5 --slow 2": (
        "With half a second of state a partition",
        {"restore_seconds": 0.5, "slow_seconds": 2.0},
    ),
    "python bench/bounce.py": (
        "Members that cost nothing",
        {"restore_seconds": 0.0, "slow_seconds": 0.0},
    ),
}
"""The command without its kind -> text above its table, and the common part of its lines."""
HEAD = (
    "kind",
    "no progress s",
    "longest stop s",
    "survivor gap s",
    "changes of owner",
    "read twice",
    "unread",
)


def _row(line: dict[str, Any]) -> list[str]:
    kind = f"`{'--static ' if line['static'] else ''}{line['kind']}`"
    return [
        kind + (" *" if line.get("quiet") else ""),
        f"{line['no_progress_partition_seconds']:.1f}",
        f"{line['longest_stop_seconds']:.1f}",
        f"{line['survivor_gap_seconds']:.2f}",
        *(str(line[name]) for name in ("owner_changes", "read_twice", "unread")),
    ]


def bounces_part() -> str:
    """Return a table for each command, below its text."""
    lines: list[str] = []
    for command, (said, settings) in COMMANDS.items():
        rows = [_row(line) for line in kept(**settings) if not line.get("crash")]
        lines += [f"{said}, `{command} KIND`:", "", *table(HEAD, rows), ""]
    return "\n".join(lines[:-1])
