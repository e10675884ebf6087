"""The table of docs/measured/rollout.md: what ``bench/rollout.py`` measured, as it was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.pages.tables import table

KEPT = Path(__file__).parents[2] / "bench" / "rollout.jsonl"
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


def kept() -> list[dict[str, Any]]:
    """The kept figures, one entry a scenario."""
    return [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]


def rollouts_part() -> str:
    """The table, and what made it."""
    rows = []
    for line in kept():
        kind, _, policy = line["scenario"].partition("-")
        numbers = ("changes", "unowned", "standstill", "killed", "lost", "twice")
        rows.append([WHAT[kind], f"`{policy}`", *(line[name] for name in numbers)])
    made = "`python bench/rollout.py > bench/rollout.jsonl` writes these figures anew."
    return "\n".join([*table(HEAD, rows), "", made])
