"""``holdfast simulate``: what a rebalance policy costs, measured in a simulated group.

**Rules.** The same options and seed print the same numbers in any process. Exit 1 when a checker
found a broken rule. Progress and the cost model go to stderr.

**Strategy.** :func:`holdfast.sim.scenarios.simulate` does the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.assignors.registry import ASSIGNORS
from holdfast.cli.durations import parse_duration_ms
from holdfast.cli.output import Format, print_note, track, write_json, write_rows
from holdfast.cli.simulate_search import run_search
from holdfast.cli.simulation_dump import write_simulation
from holdfast.errors import ConfigError, SourceError, suggest
from holdfast.machine.policy import Policy, When
from holdfast.model.columns import INT32_MAX
from holdfast.sim.scenarios import POLICIES, SCENARIOS, Report, ScenarioStep, Setup, simulate
from holdfast.sim.search.search import KINDS
from holdfast.sim.soak import soak
from holdfast.sim.world.costs import Costs, Listener
from holdfast.sim.world.world import World

_COLUMNS = ("measure", "value")

_EXAMPLES = """\b
Examples:
  holdfast simulate --scenario rolling-bounce --policy deferred \\
    --members 50 --partitions 1000
  holdfast simulate --policy eager --cost rebuild=0s --cost slow-members=0
  holdfast simulate --scenario story.json --policy incremental --trace
  holdfast simulate --policy eager --dump runs/eager &&
    holdfast history --input runs/eager -o tables
  holdfast simulate --soak 500 --seed 7
  holdfast simulate --search --policy deferred --lost sync
\b
A scenario file: {"steps": [{"at": "10s", "do": "crash", "slot": 2},
{"at": "20s", "do": "start", "slot": 2}]}; do is start, stop, crash, stall,
split, resize, jump-clock or restart-coordinator; slot -1 is whoever leads.
"""

_EVERYWHERE = {"output", "quiet"}
_TAKES: Mapping[str, frozenset[str]] = {
    "--soak": frozenset({"runs", "seed", "policy", "trace", "fmt"}),
    "--search": frozenset({"search", "lost", "policy", "partitions", "fmt"}),
}
"""What is done instead of one simulation -> the options that mean something to it."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate", epilog=_EXAMPLES)(run)


def run(
    context: typer.Context,
    *,
    scenario: Annotated[
        str,
        typer.Option("--scenario", help=f"{', '.join(SCENARIOS)}, or a file."),
    ] = "rolling-bounce",
    policy: Annotated[
        str, typer.Option("--policy", help=f"{', '.join(POLICIES)}, or an eager assignor.")
    ] = "deferred",
    members: Annotated[int, typer.Option("--members", min=1, help="Processes in the group.")] = 6,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", min=1, help="Of one topic: 24, with --search 4.", show_default=False
        ),
    ] = None,
    delay: Annotated[
        str, typer.Option("--delay", help="How long lost partitions wait (Designs II, III).")
    ] = "30s",
    batch: Annotated[int, typer.Option("--batch", help="Design III: moves per round.")] = 1,
    interval: Annotated[
        str, typer.Option("--interval", help="Design III: between batches.")
    ] = "10s",
    first_member: Annotated[
        When, typer.Option("--first-member", help="A new group assigns now or waits.")
    ] = When.IMMEDIATE,
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="How many members scale or die.")
    ] = 1,
    static: Annotated[bool, typer.Option("--static", help="Members have instance ids.")] = False,
    crash: Annotated[
        bool, typer.Option("--crash", help="Who bounces or scales down crashes.")
    ] = False,
    listener: Annotated[
        Listener | None,
        typer.Option("--listener", help="KIP-54's; default: old for eager, new for the others."),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", help="NAME=DURATION of the cost model; repeatable. See -v."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="All chance comes from it.")] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Print what happened.")] = False,
    dump: Annotated[
        Path | None,
        typer.Option("--dump", metavar="DIR", help="Write the coordinator's records as a dump."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--soak", metavar="N", min=0, help="Instead: N random faulty runs.")
    ] = 0,
    search: Annotated[
        bool, typer.Option("--search", help="Instead: every interleaving of the default bound.")
    ] = False,
    lost: Annotated[
        str,
        typer.Option(
            "--lost", metavar="KINDS", help=f"With --search: {', '.join(KINDS)}; commas between."
        ),
    ] = "",
    fmt: Annotated[Format, typer.Option("--format", help="table is for people.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print costs and sizes.")
    ] = False,
) -> None:
    """Simulate a group under a rebalance policy and measure what stops.

    Exit codes: 0 done; 1 a checker found a broken rule; 2 a wrong option; 3 a scenario file that
    cannot be read.
    """
    given = _given(context)
    if "runs" in given:
        _refuse("--soak", given)
        only = policy if "policy" in given else None
        _soak(runs, seed, only, fmt, output, quiet=quiet, trace=trace)
        return
    if search:
        _refuse("--search", given)
        n = 4 if partitions is None else partitions
        run_search(policy, lost, fmt, output, partitions=n, quiet=quiet)
        return
    if lost:
        raise ConfigError("--lost belongs to --search")
    _check_policy(policy)
    settings = Policy(
        delay_ms=parse_duration_ms(delay, "--delay"),
        batch=batch,
        interval_ms=parse_duration_ms(interval, "--interval"),
        first_member=first_member,
    )
    costs = replace(read_costs(cost or ()), listener=listener)
    setup = Setup(
        scenario=scenario,
        policy=policy,
        members=members,
        partitions=24 if partitions is None else partitions,
        seed=seed,
        settings=settings,
        costs=costs,
        static=static,
        crash=crash,
        steps=steps,
        trace=trace,
    )
    setup = _scripted(setup)
    if verbose and not quiet:
        for name, value, text in costs.lines():
            print_note(f"{name.replace('_', '-')} = {value}: {text}")
    report = simulate(
        setup,
        ended=None if dump is None else lambda w: _dump(w, dump, quiet=quiet),
        track=lambda slots: track(slots, len(slots), "members bounced", quiet=quiet),
    )
    if trace and not quiet:
        for line in report.trace:
            print_note(line)
    _write(report, fmt, output, sizes=verbose)
    if report.violations:
        raise typer.Exit(1)


def _given(context: typer.Context) -> dict[str, str]:
    """Options that stand on the command line: parameter -> its name there."""
    return {
        p.name: p.opts[0]
        for p in context.command.params
        if p.name and getattr(context.get_parameter_source(p.name), "name", "") == "COMMANDLINE"
    }


def _idle(instead: str, given: Mapping[str, str]) -> list[str]:
    """Options that mean nothing to what is done instead."""
    return sorted(opt for name, opt in given.items() if name not in _TAKES[instead] | _EVERYWHERE)


def _refuse(instead: str, given: Mapping[str, str]) -> None:
    idle = _idle(instead, given)
    if idle:
        raise ConfigError(f"{', '.join(idle)} mean{'s' * (len(idle) == 1)} nothing with {instead}")


def _check_policy(name: str) -> None:
    known = (*POLICIES, *ASSIGNORS)
    if name not in known:
        raise ConfigError(f"--policy {name}: {suggest(name, known, 2)}")


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


def read_costs(given: tuple[str, ...] | list[str]) -> Costs:
    """``rebuild=2s`` and the like as a cost model.

    Raises
    ------
    ConfigError
        If a name is unknown or a value is no duration.
    """
    known = {name.removesuffix("_ms").replace("_", "-"): name for name, _, _ in Costs().lines()}
    changes: dict[str, Any] = {}
    for entry in given:
        name, _, value = entry.partition("=")
        name = name.strip().removesuffix("-ms")
        if name not in known:
            raise ConfigError(f"--cost {name}: {suggest(name, known)}")
        changes[known[name]] = parse_duration_ms(value, f"--cost {name}")
    return replace(Costs(), **changes)


def _scripted(setup: Setup) -> Setup:
    """A scenario file as a script; a scenario by name stays."""
    if setup.scenario not in SCENARIOS:
        return replace(setup, script=_read_script(setup.scenario, setup.members))
    return setup


def _read_script(name: str, members: int) -> tuple[ScenarioStep, ...]:
    path = Path(name)
    if not path.exists():
        hint = suggest(name, SCENARIOS)
        raise ConfigError(f"--scenario {name}: neither a scenario nor a file; {hint}")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["steps"]
        script = tuple(_step(entry, i) for i, entry in enumerate(entries))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SourceError(f"{name}: not a scenario file: {why}") from error
    if not script:
        raise ConfigError(f"{name}: steps: found none, expected at least one")
    started = {-1, *range(members)}
    for step in sorted(script, key=lambda s: s.at_ms):
        if step.do == "start":
            started.add(step.slot)
        if step.slot not in started:
            raise ConfigError(
                f"{name}: slot: found {step.slot}, expected 0 to {members - 1}, one that was "
                "started before, or -1 for whoever leads"
            )
    return script


def _step(entry: dict[str, Any], index: int) -> ScenarioStep:
    allowed = {f.name for f in fields(ScenarioStep)} - {"at_ms", "for_ms"} | {"at", "for"}
    unknown = sorted(set(entry) - allowed)
    if unknown:
        raise ConfigError(f"steps[{index}]: unknown key {unknown[0]!r}; known: {sorted(allowed)}")
    if type(entry.get("returns", True)) is not bool:
        raise ConfigError(f"steps[{index}].returns: found {entry['returns']!r}, expected a bool")
    for key, lowest in (("slot", -1), ("count", 0)):
        value = entry.get(key, 0)
        if type(value) is not int or not lowest <= value <= INT32_MAX:
            raise ConfigError(f"steps[{index}].{key}: found {value!r}, expected {lowest} or more")
    at_ms = parse_duration_ms(str(entry["at"]), f"steps[{index}].at")
    text = str(entry.get("for", 0)).strip()
    back = text.startswith("-") and entry["do"] == "jump-clock"  # only a clock goes backwards
    for_ms = parse_duration_ms(text.removeprefix("-") if back else text, f"steps[{index}].for")
    if max(at_ms, for_ms) > INT32_MAX:
        raise ConfigError(f"steps[{index}]: {max(at_ms, for_ms)} ms, expected at most {INT32_MAX}")
    values = {k: v for k, v in entry.items() if k not in ("at", "for")}
    return ScenarioStep(at_ms=at_ms, for_ms=-for_ms if back else for_ms, **values)


def _soak(
    runs: int,
    seed: int,
    policy: str | None,
    fmt: Format,
    output: Path | None,
    *,
    quiet: bool,
    trace: bool,
) -> None:
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
        write_json(
            {
                "schema_version": 1,
                "runs": runs,
                "seed": seed,
                "rounds": outcome.rounds,
                "digest": outcome.digest,
                "violations": rows,
            },
            output,
        )
    else:
        print_note(f"{runs} runs, {outcome.rounds} rounds, {len(outcome.failures)} broken")
        write_rows(rows, ("seed", "policy", "rule", "at_ms", "text"), fmt, output)
    if rows:
        same = "" if policy is None else f" --policy {policy}"
        print_note(f"again: holdfast simulate --soak 1 --seed {rows[0]['seed']}{same} --trace")
        raise typer.Exit(1)
