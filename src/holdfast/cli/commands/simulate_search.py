"""``holdfast simulate-search``: every interleaving of a small world, and how many states it has.

**Rules.** Exit 1 when a rule is broken or the search did not end.

**Strategy.** :mod:`holdfast.sim.search.search` does the work, within its default bound.
"""

from __future__ import annotations

from typing import Annotated

from click.exceptions import Exit

from holdfast.cli.declared import Option
from holdfast.cli.options import OutputFile, PrintFormat, Quiet
from holdfast.cli.output import Format, print_note, track, write_json, write_rows
from holdfast.core.machine.offers import assignors_for
from holdfast.core.machine.policies import POLICIES, check_known
from holdfast.core.machine.policy import Policy
from holdfast.errors import ConfigError
from holdfast.sim.search.search import KINDS, Bound, Search

SETTINGS = Policy(delay_ms=20_000)


EXAMPLES = """\b
Examples:
  holdfast simulate-search --policy deferred --lost sync
  holdfast simulate-search --policy deferred --forget 2 --partitions 3
  holdfast simulate-search --policy eager --partitions 3 --format json
"""


def run(
    *,
    policy: Annotated[str, Option("--policy", help=", ".join(POLICIES))] = "deferred",
    lost: Annotated[
        str,
        Option(
            "--lost",
            metavar="KINDS",
            help=f"One message of each is lost or late: {', '.join(KINDS)}; commas between.",
        ),
    ] = "",
    partitions: Annotated[
        int, Option("--partitions", min=1, help="Of one topic, at most 8.")
    ] = Bound().partitions,
    forget: Annotated[
        int, Option("--forget", min=0, help="Members that lose their share of the memory.")
    ] = Bound().forgets,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Search every order of events of a small group.

    Events are joins, a crash, a leave and lost messages.

    Exit codes: 0 done; 1 a rule is broken or the search did not end; 2 a wrong option.
    """
    if partitions > 8:
        raise ConfigError(f"--partitions {partitions}: expected 1 to 8, the bound is 4")
    check_known(policy, "--policy")
    kinds = tuple(kind.strip() for kind in lost.split(",") if kind.strip())
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(f"--lost {kind}: expected {', '.join(KINDS)}")
    bound = Bound(lost=",".join(kinds), partitions=partitions, forgets=forget)
    search = Search(assignors_for(policy, SETTINGS), bound)
    found = search.run(lambda states: track(states, None, "states", quiet=quiet))
    values = {
        "schema_version": 1,
        "policy": policy,
        "members": bound.members,
        "joins": bound.joins,
        "partitions": bound.partitions,
        "crashes": bound.crashes,
        "leaves": bound.leaves,
        "forgets": bound.forgets,
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
        raise Exit(1)
