"""``holdfast simulate``: what a rebalance policy costs, measured in a simulated group.

**Rules.** The same options and seed print the same numbers in any process. Exit 1 when a rule was
broken (:mod:`holdfast.sim.clock`). Progress and the cost model go to stderr.

A drawing shows who owned each partition when, one panel a policy. All panels have one scale of
time, so the widths compare. One row is one partition; of more than ``MOST_ROWS`` the drawing shows
evenly spaced ones and says so. A slot has one colour: a process that returns has the colour that it
had. Full colour is processing, pale colour is rebuilding state, blank is without an owner.

**Strategy.** :func:`holdfast.sim.scenarios.simulate` does the work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from xml.sax.saxutils import escape

from click.exceptions import Exit

from holdfast.cli.declared import Option
from holdfast.cli.option_values import (
    DELAY,
    INTERVAL,
    STABILIZATION,
    Batch,
    Interval,
    named_durations_ms,
    parse_assignor,
    parse_duration_ms,
    parse_policy,
    split_names,
)
from holdfast.cli.options import OutputFile, PrintFormat, Quiet
from holdfast.cli.output import Format, print_note, track, write_json, write_rows, write_text
from holdfast.cli.simulation_files import read_scenario, write_simulation
from holdfast.core.assignors.own import OwnAssignor
from holdfast.core.assignors.registry import ASSIGNORS, Named, canonical, find, for_protocol
from holdfast.core.machine.policy import DEFAULTS, Policy, PolicyInfo, find_policy
from holdfast.errors import ConfigError, suggest
from holdfast.sim import BASELINES
from holdfast.sim.clock import Costs, Ownership
from holdfast.sim.scenarios import SCENARIOS, SIMULATED, Report, Setup, simulate
from holdfast.sim.world import World

_COLUMNS = ("measure", "value")

EXAMPLES = """\b
Examples:
  holdfast simulate --scenario rolling-bounce --policy deferred \\
    --members 50 --partitions 1000
  holdfast simulate --policy simple,deferred,failback --picture policies.svg
  holdfast simulate --policy eager --cost rebuild=0s --cost slow-members=0
  holdfast simulate --scenario scenario.json --policy incremental --trace
  holdfast simulate --policy deferred --assignor policies:by_host
  holdfast simulate --scenario flaps.json --policy policies:patient
  holdfast simulate --policy eager --dump runs/eager &&
    holdfast history --input runs/eager -o tables
\b
A scenario file: {"steps": [{"at": "10s", "do": "crash", "slot": 2},
{"at": "20s", "do": "start", "slot": 2}]}; do is start, stop, crash, stall,
split, resize, jump-clock or restart-coordinator; slot -1 is the leader.
"""

ScenarioName = Annotated[
    str, Option("--scenario", metavar="NAME", help=f"Scenario: {', '.join(SCENARIOS)}, or a file.")
]
PolicyName = Annotated[
    str,
    Option(
        "--policy",
        metavar="POLICY",
        help=f"Policy: {', '.join(SIMULATED)}, an assignor, or module:function for imbalance. "
        "Several, separated by commas, are compared.",
    ),
]
AssignorName = Annotated[
    str | None,
    Option(
        "--assignor",
        metavar="NAME",
        help="Assignor of the policy, or for a design's targets: a name, or module:function; "
        "default: that of the policy.",
    ),
]
Members = Annotated[int, Option("--members", min=1, help="Number of members.")]
Partitions = Annotated[
    int, Option("--partitions", min=1, help="Number of partitions of the topic.")
]
Delay = Annotated[
    str,
    Option(
        "--delay",
        metavar="DURATION",
        help="Delay before lost partitions are reassigned (Designs II, III): longer than the "
        "slowest restart. A new member is a successor, for which no partition waits, only in a "
        "group that has not grown for 30 s.",
    ),
]
Stabilization = Annotated[
    str,
    Option(
        "--stabilization",
        metavar="DURATION",
        help="Time before a new member gains partitions of others (damped).",
    ),
]
Static = Annotated[bool, Option("--static", help="Give members instance ids.")]
Crash = Annotated[bool, Option("--crash", help="Let members crash instead of leave.")]
CostChanges = Annotated[
    list[str] | None,
    Option(
        "--cost",
        metavar="NAME=DURATION",
        help="Entry of the cost model; repeatable; -v lists them.",
    ),
]
Seed = Annotated[int, Option("--seed", min=0, help="Seed of all random numbers.")]
Traced = Annotated[bool, Option("--trace", help="Print the trace.")]
DumpFolder = Annotated[
    Path | None,
    Option("--dump", metavar="FOLDER", help="Write the coordinator's records as a dump."),
]
Picture = Annotated[
    Path | None,
    Option(
        "--picture", metavar="FILE", help="Draw the owners of each partition over time, as SVG."
    ),
]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Print costs and sizes.")]


def run(
    *,
    scenario: ScenarioName = "rolling-bounce",
    policy: PolicyName = "deferred",
    assignor: AssignorName = None,
    members: Members = 6,
    partitions: Partitions = 24,
    delay: Delay = DELAY,
    batch: Batch = DEFAULTS.batch,
    interval: Interval = INTERVAL,
    stabilization: Stabilization = STABILIZATION,
    static: Static = False,
    crash: Crash = False,
    cost: CostChanges = None,
    seed: Seed = 0,
    trace: Traced = False,
    dump: DumpFolder = None,
    picture: Picture = None,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Simulate a group under a rebalance policy and measure what stops.

    Exit codes: 0 done; 1 the group did not settle, or loads are uneven; 2 a wrong option, or a
    function of yours that gives no valid plan; 3 a scenario file that cannot be read.
    """
    names = split_names(policy, "--policy")
    if len(names) > 1 and dump is not None:
        raise ConfigError("--dump: expected one --policy; a dump has the records of one run")
    settings = Policy(
        delay_ms=parse_duration_ms(delay, "--delay"),
        batch=batch,
        interval_ms=parse_duration_ms(interval, "--interval"),
        stabilization_ms=parse_duration_ms(stabilization, "--stabilization"),
    )
    setup = Setup(
        scenario=scenario,
        members=members,
        partitions=partitions,
        seed=seed,
        settings=settings,
        costs=read_costs(cost or ()),
        static=static,
        crash=crash,
        script=() if scenario in SCENARIOS else read_scenario(scenario, members),
        trace=trace,
        timeline=picture is not None,
    )
    setups = [_under(setup, name, assignor) for name in names]  # all are checked before one runs
    if verbose and not quiet:
        for name, value, text in setup.costs.lines():
            print_note(f"{name.replace('_', '-')} = {value}: {text}")
    reports = [_simulate(each, dump, quiet=quiet) for each in setups]
    if picture is not None:
        write_text(draw(reports), picture)
    if len(reports) == 1:
        _write(reports[0], fmt, output, sizes=verbose)
    else:
        _write_comparison(reports, fmt, output, sizes=verbose)
    if any(report.violations for report in reports):
        raise Exit(1)


def _under(setup: Setup, policy: str, assignor: str | None) -> Setup:
    """Return the setup under a policy of the command line, and its assignor."""
    named = policy if ":" not in policy else parse_policy(policy)
    chosen = named if isinstance(named, PolicyInfo) else _known_policy(named)
    own = None if assignor is None else _under_policy(chosen, parse_assignor(assignor))
    return replace(setup, policy=chosen, assignor=own)


def _simulate(setup: Setup, dump: Path | None, *, quiet: bool) -> Report:
    """Run the simulation, show its progress and write its dump."""
    report = simulate(
        setup,
        ended=None if dump is None else lambda w: _dump(w, dump, quiet=quiet),
        track=lambda slots: track(slots, len(slots), "members bounced", quiet=quiet),
    )
    if setup.trace and not quiet:
        for line in report.trace:
            print_note(line)
    return report


def _known_policy(name: str) -> str:
    known = (*SIMULATED, *ASSIGNORS)
    if (own := canonical(name)) not in known:
        raise ConfigError(f"--policy {name}: {suggest(name, known, 2)}")
    return own


def _under_policy(policy: str | PolicyInfo, requested: Named) -> Named:
    """Return the assignor in the policy's protocol; a user's function runs in both."""
    if policy in BASELINES or (row := find_policy(policy)).design is not None:
        return requested
    if isinstance(requested, OwnAssignor):
        return replace(requested, cooperative=row.cooperative)
    if (name := for_protocol(find(requested).name, cooperative=row.cooperative)) is None:
        mode = "cooperative" if row.cooperative else "eager"
        raise ConfigError(
            f"--assignor {find(requested).name}: --policy {row.name} needs a {mode} one"
        )
    return name


def _dump(world: World, folder: Path, *, quiet: bool) -> None:
    written = write_simulation(world, folder)
    if not quiet:
        print_note(f"{written.n_records()} records in {written.path}")


def _write(report: Report, fmt: Format, output: Path | None, *, sizes: bool) -> None:
    values = report.to_dict(sizes=sizes or fmt is Format.TABLE)
    if fmt is Format.JSON:
        write_json(values, output)
        return
    if fmt is Format.TABLE:
        rows = [{"measure": k.replace("_", " "), "value": v} for k, v in values.items()]
        write_rows(rows, _COLUMNS, fmt, output, title=f"{report.scenario}, {report.policy}")
        return
    if fmt is Format.CSV:
        values["violations"] = json.dumps(values["violations"])
    write_rows([values], tuple(values), fmt, output)


def _write_comparison(
    reports: Sequence[Report], fmt: Format, output: Path | None, *, sizes: bool
) -> None:
    """Write one column for each policy; in JSON and CSV one document or row."""
    values = [report.to_dict(sizes=sizes) for report in reports]
    if fmt is Format.JSON:
        write_json({"schema_version": 1, "compare": values}, output)
        return
    if fmt is Format.TABLE:
        same = {"schema_version", "scenario", "policy", "seed", "members", "partitions"}
        rows = [
            {"measure": name.replace("_", " ")} | {r["policy"]: _shown(r[name]) for r in values}
            for name in values[0]
            if name not in same
        ]
        first = reports[0]
        title = f"{first.scenario}, {first.members} members, {first.partitions} partitions"
        write_rows(rows, ("measure", *(r["policy"] for r in values)), fmt, output, title=title)
        return
    for row in values:
        row["violations"] = json.dumps(row["violations"])
    write_rows(values, tuple(values[0]), fmt, output)


def _shown(value: object) -> object:
    """Return a value for a cell of the comparison: of a list, how many entries it has."""
    return len(value) if isinstance(value, list) else value


def read_costs(given: Sequence[str]) -> Costs:
    """Return the cost model with ``NAME=DURATION`` applied; raises as ``named_durations_ms``."""
    known = {name.removesuffix("_ms").replace("_", "-"): name for name, _, _ in Costs().lines()}
    changes: dict[str, Any] = {
        known[name]: ms for name, ms in named_durations_ms(given, known, "--cost").items()
    }
    return replace(Costs(), **changes)


MOST_ROWS = 24
WIDTH, LEFT, RIGHT = 960, 12, 12
ROW, HEADING, GAP, AXIS, TOP = 8, 34, 18, 26, 44
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7d00", "#7f3c8d")
"""Colours that people with any colour vision tell apart (Okabe and Ito); repeated after eight."""
TICKS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)


def draw(reports: Sequence[Report]) -> str:
    """Return an SVG document with one panel for each run with a timeline; at least one."""
    longest_ms = max(max((o.end_ms for o in r.timeline), default=0) - r.begin_ms for r in reports)
    longest_ms = max(longest_ms, 1)
    panels, y = [], TOP
    for report in reports:
        panel, height = _panel(report, y, longest_ms)
        panels += panel
        y += height + GAP
    first = reports[0]
    title = (
        f"{first.scenario}: {first.members} members, {first.partitions} partitions. "
        "Full colour: processing; pale: rebuilding state; blank: no owner."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + AXIS}" '
            'font-family="sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{y + AXIS}" fill="#fff"/>',
            _text(LEFT, 24, title),
            *panels,
            *_axis(y - GAP, longest_ms),
            "</svg>\n",
        ]
    )


def _panel(report: Report, y: int, longest_ms: int) -> tuple[list[str], int]:
    """Return the elements of one run, and its height."""
    resources = sorted({o.resource for o in report.timeline})
    n_rows = min(MOST_ROWS, len(resources))
    shown = {resources[i * len(resources) // n_rows]: i for i in range(n_rows)}
    says = (
        f"{report.policy}: {report.partition_seconds_stopped:,.0f} partition-seconds stopped, "
        f"{report.moved:,} moves, longest stop {report.longest_stop_seconds:,.0f} s"
    )
    if len(resources) > n_rows:
        says += f" ({n_rows} of {len(resources)} partitions drawn)"
    lines = [
        _text(LEFT, y + 16, says, weight="bold"),
        f'<rect x="{LEFT}" y="{y + HEADING - 10}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{n_rows * ROW}" fill="#eee"/>',
    ]
    for owned in report.timeline:
        if (row := shown.get(owned.resource)) is not None:
            lines += _interval(owned, y + HEADING - 10 + row * ROW, report.begin_ms, longest_ms)
    return lines, HEADING + n_rows * ROW


def _interval(owned: Ownership, y: int, begin_ms: int, longest_ms: int) -> list[str]:
    """Return the bars of one interval: rebuilding, then processing."""
    colour = COLOURS[owned.slot % len(COLOURS)]
    parts = (
        (owned.begin_ms, owned.ready_ms, ' opacity=".35"'),
        (owned.ready_ms, owned.end_ms, ""),
    )
    return [
        f'<rect x="{_x(begin - begin_ms, longest_ms):.1f}" y="{y}" '
        f'width="{_x(end - begin, longest_ms) - LEFT:.1f}" height="{ROW - 1}" '
        f'fill="{colour}"{opacity}/>'
        for begin, end, opacity in parts
        if end > begin
    ]


def _axis(y: int, longest_ms: int) -> list[str]:
    """Return the axis of time below the panels, in seconds or minutes."""
    step_s = next((t for t in TICKS_S if longest_ms / 1000 / t <= 10), TICKS_S[-1])
    lines = []
    for at_s in range(0, longest_ms // 1000 + 1, step_s):
        x = _x(at_s * 1000, longest_ms)
        label = f"{at_s // 60} min" if step_s >= 60 else f"{at_s} s"
        anchor = "start" if at_s == 0 else "middle"
        lines += [
            f'<path d="M{x:.1f} {TOP}V{y + 4}" stroke="#0003"/>',
            _text(x, y + 20, label, anchor=anchor),
        ]
    return lines


def _x(ms: int, longest_ms: int) -> float:
    return LEFT + ms / longest_ms * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: int, text: str, *, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="#222">{escape(text)}</text>'
    )
