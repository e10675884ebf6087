"""The table of docs/measured/rollout.md: what ``bench/rollout.py`` measured, as it was kept."""

from __future__ import annotations

from tools.measured import kept
from tools.pages.tables import table

COMMAND = "python bench/rollout.py"
WHAT = {
    "surge": "Deployment, `maxSurge: 1`",
    "swap": "Deployment, `maxUnavailable: 1`",
    "static": "StatefulSet",
    "hang": "Deployment, one pod hangs and is deleted",
}
HEAD = (
    "rollout",
    "policy",
    "changes of owner",
    "without an owner, partition-seconds",
    "longest standstill of a partition, s",
    "killed",
    "records lost",
    "read twice",
)


def rollouts_part() -> str:
    """The table, and what made it."""
    rows = []
    for line in kept(COMMAND):
        kind, _, policy = line["scenario"].partition("-")
        numbers = ("changes", "unowned", "standstill", "killed", "lost", "twice")
        rows.append([WHAT[kind], f"`{policy}`", *(line[name] for name in numbers)])
    made = "`python -m tools.measured python bench/rollout.py` writes these figures anew."
    return "\n".join([*table(HEAD, rows), "", made])
