"""Every interleaving of a small world, counted: ``python -m tests.proof.search``.

**Rules.** Standard output is one JSON object. Exit 1 when a rule is broken or the search did not
end.

**Strategy.** :mod:`tests.proof.walk` does the work, within its default bound.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.proof.walk import KINDS, Bound, Search

from holdfast.core.machine.policy import POLICIES, Policy
from holdfast.core.machine.supported_protocols import assignors_for

SETTINGS = Policy(delay_ms=20_000)
MOST_PARTITIONS = 8


def main(arguments: list[str] | None = None) -> int:
    """Search one bound; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.proof.search")
    parser.add_argument("--policy", choices=tuple(POLICIES), default="deferred")
    parser.add_argument(
        "--lost",
        default="",
        metavar="KINDS",
        help=f"one message of each is lost or late: {', '.join(KINDS)}; commas between",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        choices=range(1, MOST_PARTITIONS + 1),
        default=Bound().partitions,
        help="of one topic",
    )
    parser.add_argument(
        "--subscribe",
        type=int,
        default=0,
        help="members that subscribe to a second topic of two partitions",
    )
    parser.add_argument(
        "--forget", type=int, default=0, help="members that lose their shard of the leader state"
    )
    parser.add_argument(
        "--locations",
        action="store_true",
        help="members have locations; joining members have that of the first one",
    )
    options = parser.parse_args(arguments)
    kinds = tuple(kind.strip() for kind in options.lost.split(",") if kind.strip())
    for kind in kinds:
        if kind not in KINDS:
            parser.error(f"--lost {kind}: expected {', '.join(KINDS)}")
    bound = Bound(
        lost=",".join(kinds),
        partitions=options.partitions,
        forgets=options.forget,
        subscribes=options.subscribe,
        locations=options.locations,
    )
    found = Search(assignors_for(options.policy, SETTINGS), bound).run()
    values = {
        "policy": options.policy,
        "members": bound.members,
        "joins": bound.joins,
        "partitions": bound.partitions,
        "crashes": bound.crashes,
        "leaves": bound.leaves,
        "forgets": bound.forgets,
        "subscribes": bound.subscribes,
        "lost": list(kinds),
        "states": found.states,
        "transitions": found.transitions,
        "settled": found.settled,
        "complete": found.complete,
        "violations": [v.to_dict() for v in found.violations],
    }
    print(json.dumps(values))
    return int(bool(found.violations) or not found.complete)


if __name__ == "__main__":
    sys.exit(main())
