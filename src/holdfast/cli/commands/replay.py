"""``holdfast replay``: what real histories would have cost under other rebalance policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.histories import session_of
from holdfast.cli.option_values import (
    DELAY,
    INTERVAL,
    Batch,
    Interval,
    parse_duration_ms,
    split_names,
)
from holdfast.cli.output import Format, notes, track, write_rows
from holdfast.cli.sources import OpenedTables, open_source
from holdfast.cli.spark_progress import spark_bar
from holdfast.core.assignors.registry import ASSIGNORS, canonical, find, for_protocol
from holdfast.core.machine.policy import (
    DEFAULTS,
    POLICIES,
    PolicyInfo,
    check_known,
    find_policy,
    policy_of_protocol,
)
from holdfast.core.model.measure import LOW_FIDELITY
from holdfast.core.names import visible
from holdfast.errors import ConfigError, suggest
from holdfast.sim import BASELINE_ASSIGNORS, BASELINES

if TYPE_CHECKING:
    from holdfast.fleet.pipeline.replay.run import Request
    from holdfast.fleet.pipeline.replay.session import ReplaySettings
    from holdfast.fleet.pipeline.replay.trace import GroupTrace

EXAMPLES = """\b
Examples:
  holdfast replay -b localhost:9092 --group etl
  holdfast replay --input tables --policy deferred --delay 30s,5m
  holdfast replay --input dump --assignor lag-sticky
  holdfast replay --input tables --policy kip848
  holdfast replay --input tables --format json -o replay.json &&
    holdfast report --input tables --replay replay.json
\b
The first row of a group is its actual policy. Rounds, moves and revocations
are counted; seconds are those in which the group waited for a member.
"""


COMPARED = ("eager", "simple", "deferred", "incremental")
"""Policies of a comparison that names none."""


MEANINGS = {
    "fidelity_moves": "moves differ from the records: trust no number",
    "fidelity_rebalances": "rebalances differ from the records: trust no number",
}
"""Agreement -> what it means if it is low, the gravest first."""


SHORT = (
    "group",
    "policy",
    "assignor",
    "delay_ms",
    "rebalances",
    "moved",
    "revocations",
    "partition_seconds_awaited",
    "fidelity",
    "low",
    "actual",
    "n_events",
    "longest_wait_seconds",
    "time_to_balance_seconds",
)
"""Columns of the table for people, the ten first that matter most."""


def run(
    *,
    source_options: options.SourceOptions,
    policy: Annotated[
        str | None,
        Option(
            "--policy",
            metavar="POLICIES",
            help=f"Policies to compare, separated by commas: {', '.join((*POLICIES, *BASELINES))}; "
            f"default: {','.join(COMPARED)}.",
        ),
    ] = None,
    assignor: Annotated[
        str | None,
        Option(
            "--assignor",
            metavar="NAMES",
            help="Assignors, separated by commas; default: that of the policy.",
        ),
    ] = None,
    delay: Annotated[
        str,
        Option(
            "--delay",
            metavar="DURATIONS",
            help="Delays of deferred and incremental, separated by commas: longer than a restart.",
        ),
    ] = DELAY,
    batch: Batch = DEFAULTS.batch,
    interval: Interval = INTERVAL,
    seed: Annotated[int, Option("--seed", help="Seed of all random numbers.")] = 0,
    fmt: options.PrintFormat = Format.TABLE,
    columns: options.ColumnsOfTable = options.Columns.MAIN,
    output: options.OutputFile = None,
    window: options.Window,
) -> None:
    """Replay every group's real history under other settings.

    Nothing is changed on the cluster: the code that runs in members runs on the records.
    """
    from holdfast.fleet.pipeline.replay.run import Request
    from holdfast.fleet.pipeline.replay.session import supported_assignors

    note = notes(source_options.quiet)
    delays = [parse_duration_ms(text, "--delay") for text in split_names(delay, "--delay")]
    wait_ms = parse_duration_ms(interval, "--interval")
    settings = settings_from(_given(policy, "--policy"), _given(assignor, "--assignor"), delays)
    request = Request(
        settings=tuple(replace(each, batch=batch, interval_ms=wait_ms) for each in settings),
        default_delay_ms=delays[0],
        seed=seed,
    )
    for setting in request.settings:  # a wrong number is found before anything is read
        if setting.policy not in BASELINES:
            supported_assignors(setting)
    with open_source(source_options, window, auto_offset_reset="earliest") as opened:
        found = _traces(opened, request, note, quiet=source_options.quiet)
        made = _replayed(found, request, source_options.engine, quiet=source_options.quiet)
    rows = made.to_pylist()
    if fmt is Format.TABLE:
        _write_for_people(rows, output, every_column=columns.are_all)
    else:
        write_rows(rows, made.column_names, fmt, output)
    _report_missing(rows, note)


def _given(text: str | None, option: str) -> list[str]:
    return [] if text is None else split_names(text, option)


def _is_low(row: Mapping[str, Any]) -> bool:
    return row["fidelity"] is not None and row["fidelity"] < LOW_FIDELITY


def differs(row: Mapping[str, Any]) -> str:
    """Return the worst agreement of a row, and which of its numbers are not to be trusted."""
    known = {name: row[name] for name in MEANINGS if row[name] is not None}
    worst = min(known, key=lambda name: known[name])
    return f"fidelity {row['fidelity']:.2f} is low: {MEANINGS[worst]}"


def _report_missing(rows: Sequence[dict[str, Any]], note: Any) -> None:
    """Report which numbers are missing, and which rows have a low fidelity."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row["reason"]:
            reasons.setdefault((row["group"], row["reason"]), {})[row["policy"]] = None
    for (group, reason), policies in reasons.items():
        note(f"{visible(group)} under {', '.join(policies)}: {reason}")
    for row in rows:
        if row["actual"] and _is_low(row):
            note(f"{visible(row['group'])}: {differs(row)}")


def settings_from(
    policies: Sequence[str], assignors: Sequence[str], delays_ms: Sequence[int]
) -> list[ReplaySettings]:
    """Return every combination with its own meaning, in the order of the options.

    Without policies, :data:`COMPARED` applies; in it, an assignor without a cooperative form is
    replayed under ``holdfast-simple`` instead of ``simple``. Raise ConfigError if a name is
    unknown, or a policy and an assignor do not go together.
    """
    from holdfast.fleet.pipeline.replay.session import ReplaySettings

    found: dict[ReplaySettings, None] = {}
    assignors = [find(name).name for name in assignors]
    for policy in map(canonical, policies or COMPARED):
        if policy in BASELINES:
            found[ReplaySettings(policy=policy, assignor=BASELINE_ASSIGNORS[policy])] = None
            continue
        if policy not in ASSIGNORS and policy not in POLICIES:
            raise ConfigError(f"--policy: {suggest(policy, (*POLICIES, *BASELINES), 2)}")
        check_known(policy, "--policy")
        row = POLICIES.get(policy) or policy_of_protocol(policy) or POLICIES["eager"]
        for name in assignors or find_policy(policy).assignors:
            chosen = _form(row, name)
            if chosen is None and policies:
                raise ConfigError(
                    f"--assignor {name}: has no cooperative form; use --policy holdfast-simple"
                )
            one = POLICIES["holdfast-simple"] if chosen is None else row
            for delay_ms in delays_ms if one.defers else (0,):
                made = ReplaySettings(policy=one.name, assignor=chosen or name, delay_ms=delay_ms)
                found[made] = None
    return list(found)


def _form(row: PolicyInfo, assignor: str) -> str | None:
    """Return the form of an assignor that goes with a policy; None if it has none."""
    return (
        assignor if row.design is not None else for_protocol(assignor, cooperative=row.cooperative)
    )


def _traces(opened: OpenedTables, request: Request, note: Any, *, quiet: bool) -> list[GroupTrace]:
    """Read the trace of every group from the tables, with a progress bar."""
    from holdfast.fleet.analysis.findings.finding import count
    from holdfast.fleet.pipeline.replay.trace_builder import traces

    machines = [one for one in request.settings if one.policy not in BASELINES]
    read = traces(
        opened.tables,
        opened.topics,
        groups=opened.groups,
        lags=any(find(one.assignor).uses_lags for one in machines),
    )
    found = list(track(read, None, "groups read", quiet=quiet))
    groups, settings = count(len(found), "group"), count(len(request.settings), "setting")
    own = "its own" if len(found) == 1 else "their own"
    note(f"replaying {groups} under {settings} and {own}")
    return found


def _replayed(
    traces: Sequence[GroupTrace], request: Request, engine: options.Engine, *, quiet: bool
) -> Any:
    """Run all replays, with a bar: pairs of group and setting here, tasks under Spark."""
    from holdfast.fleet.pipeline.replay.run import replay

    n_pairs = len(traces) * (len(request.settings) + 1)
    bar = partial(spark_bar, what="replay", n_records=n_pairs, unit="replays", quiet=quiet)
    with session_of(engine, bar) as session:
        return replay(
            session, traces, request, track=lambda p: track(p, len(p), "replays", quiet=quiet)
        )


def _write_for_people(rows: list[dict[str, Any]], out: Path | None, *, every_column: bool) -> None:
    marked = ({**row, "low": "low" if _is_low(row) else ""} for row in rows)
    shown = [with_dashes(row) for row in marked]
    write_rows(shown, SHORT, Format.TABLE, out, title="replay", every_column=every_column)


def with_dashes(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people: a dash for a missing number."""
    return {name: "-" if value is None else value for name, value in row.items()}
