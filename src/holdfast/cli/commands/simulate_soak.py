"""``holdfast simulate-soak``: random faulty runs, each of which must break no rule and settle.

**Rules.** Everything about a run comes from its seed. Exit 1 when a rule is broken; the last note
names the command that repeats the first broken run.

**Strategy.** :func:`holdfast.sim.soak.soak` does the work.
"""

from __future__ import annotations

from typing import Annotated

from click.exceptions import Exit

from holdfast.cli.declared import Option
from holdfast.cli.options import OutputFile, PrintFormat, Quiet
from holdfast.cli.output import Format, print_note, track, write_json, write_rows
from holdfast.core.command_lines import holdfast_line, option
from holdfast.core.machine.policies import POLICIES
from holdfast.sim.soak import soak

_COLUMNS = ("seed", "policy", "rule", "at_ms", "text")
EXAMPLES = """\b
Examples:
  holdfast simulate-soak --runs 500 --seed 7
  holdfast simulate-soak --runs 1 --seed 7 --policy eager --trace
"""


def run(
    *,
    runs: Annotated[int, Option("--runs", min=1, help="How many, one a seed.")] = 100,
    seed: Annotated[int, Option("--seed", min=0, help="The first one.")] = 0,
    policy: Annotated[
        str | None,
        Option("--policy", help=f"{', '.join(POLICIES)}; default: drawn from the seed."),
    ] = None,
    trace: Annotated[bool, Option("--trace", help="Print what happened.")] = False,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Simulate random faults, then quiet, and check every rule.

    Exit codes: 0 done; 1 a checker found a broken rule; 2 a wrong option.
    """
    outcome = soak(
        seed,
        runs,
        policy=policy,
        track=lambda seeds: track(seeds, len(seeds), "runs", quiet=quiet),
        seen=print_note if trace and not quiet else None,
    )
    rows = [
        {"seed": f.seed, "policy": f.policy, "rule": v.rule, "at_ms": v.at_ms, "text": v.text}
        for f in outcome.failures
        for v in f.violations[:3]
    ]
    if fmt is Format.JSON:
        values = {
            "schema_version": 1,
            "runs": runs,
            "seed": seed,
            "rounds": outcome.rounds,
            "digest": outcome.digest,
            "violations": rows,
        }
        write_json(values, output)
    else:
        print_note(f"{runs} runs, {outcome.rounds} rounds, {len(outcome.failures)} broken")
        write_rows(rows, _COLUMNS, fmt, output)
    if rows:
        same = () if policy is None else option("--policy", policy)
        first = option("--seed", str(rows[0]["seed"]))
        again = holdfast_line("simulate-soak", "--runs", "1", *first, *same, "--trace")
        print_note(f"again: {again}")
        raise Exit(1)
