"""``holdfast simulate --search``: every interleaving of a small world, and how many states it has.

**Rules.** Exit 1 when a rule is broken or the search did not end.

**Strategy.** :mod:`holdfast.sim.search.search` does the work, within its default bound.
"""

from __future__ import annotations

from pathlib import Path

import typer

from holdfast.cli.output import Format, print_note, track, write_json, write_rows
from holdfast.errors import ConfigError
from holdfast.machine.leader.designs import POLICIES, assignors_for
from holdfast.machine.policy import Policy
from holdfast.sim.search.search import KINDS, Bound, Search

SEARCHED = (*POLICIES, "sticky", "cooperative-sticky")
POLICY = Policy(delay_ms=20_000, interval_ms=10_000)


def run_search(
    policy: str, lost: str, fmt: Format, output: Path | None, *, partitions: int, quiet: bool
) -> None:
    """Search the default bound under a policy and print what was counted.

    Parameters
    ----------
    lost : str
        Kinds of request with commas between; of each one message is lost or late.

    Raises
    ------
    ConfigError
        If the policy or a kind is unknown, or there are not 1 to 8 partitions.
    """
    if not 1 <= partitions <= 8:
        raise ConfigError(f"--search --partitions {partitions}: expected 1 to 8, the bound is 4")
    if policy not in SEARCHED:
        raise ConfigError(f"--search --policy {policy}: expected {', '.join(SEARCHED)}")
    kinds = tuple(kind.strip() for kind in lost.split(",") if kind.strip())
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(f"--lost {kind}: expected {', '.join(KINDS)}")
    bound = Bound(lost=",".join(kinds), partitions=partitions)
    search = Search(assignors_for(policy, POLICY), bound)
    found = search.run(lambda states: track(states, None, "states", quiet=quiet))
    values = {
        "schema_version": 1,
        "policy": policy,
        "members": bound.members,
        "joins": bound.joins,
        "partitions": bound.partitions,
        "crashes": bound.crashes,
        "leaves": bound.leaves,
        "lost": list(kinds),
        "states": found.states,
        "transitions": found.transitions,
        "settled": found.settled,
        "complete": found.complete,
        "violations": [v.to_dict() for v in found.violations],
    }
    if fmt is Format.JSON:
        write_json(values, output)
    else:
        print_note(found.line())
        rows = [{"measure": name, "value": str(value)} for name, value in values.items()]
        write_rows(rows, ("measure", "value"), fmt, output)
    if found.violations or not found.complete:
        raise typer.Exit(1)
