"""The table of docs/measured/rollout.md: the kept measurements of ``bench/rollout.py``."""

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
    "longest downtime of a partition, s",
    "killed",
    "records lost",
    "read twice",
)


def rollouts_part() -> str:
    """Return the table, and its command."""
    rows = []
    for line in kept(COMMAND):
        kind, _, policy = line["scenario"].partition("-")
        numbers = ("changes", "unowned", "standstill", "killed", "lost", "twice")
        rows.append([WHAT[kind], f"`{policy}`", *(line[name] for name in numbers)])
    made = "`python -m tools.measured python bench/rollout.py` writes the figures again."
    return "\n".join([*table(HEAD, rows), "", made])
