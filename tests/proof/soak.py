"""Random faulty runs, each of which must break no rule and settle: ``python -m tests.proof.soak``.

**Rules.** Standard output is one JSON object, the same in any process with the same arguments.
Exit 1 when a rule is broken; standard error then names the command that repeats the first such run.

**Strategy.** :func:`tests.proof.random_runs.soak` does the work.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.proof.random_runs import SoakOutcome, soak

from holdfast.core.machine.policy import POLICIES
from holdfast.errors import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.proof.soak")
    parser.add_argument("--runs", type=int, default=100, help="how many, one a seed")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--policy", help=f"{', '.join(POLICIES)}; default: drawn from the seed")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    options = parser.parse_args(arguments)
    seen = _print_line if options.trace else None
    try:
        outcome = soak(options.seed, options.runs, policy=options.policy, seen=seen)
    except ConfigError as error:
        parser.error(str(error))
    return _report(outcome, options.seed, options.policy)


def _report(outcome: SoakOutcome, seed: int, policy: str | None) -> int:
    rows = [
        {"seed": f.seed, "policy": f.policy, "rule": v.rule, "at_ms": v.at_ms, "text": v.text}
        for f in outcome.failures
        for v in f.violations[:3]
    ]
    values = {
        "runs": outcome.runs,
        "seed": seed,
        "rounds": outcome.rounds,
        "broken": len(outcome.failures),
        "digest": outcome.digest,
        "violations": rows,
    }
    print(json.dumps(values))
    if not rows:
        return 0
    same = "" if policy is None else f" --policy {policy}"
    _print_line(
        f"again: python -m tests.proof.soak --runs 1 --seed {rows[0]['seed']}{same} --trace"
    )
    return 1


def _print_line(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
