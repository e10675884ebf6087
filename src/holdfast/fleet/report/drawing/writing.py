"""One self-contained HTML file from tables: payloads, sections, policy, script, style.

**Rules.** The file loads nothing: its policy allows the loader, the script that the loader unpacks
and one style, each by its hash, and no connection. Names from the cluster are escaped or packed.
The same tables give the same file, byte for byte. Without JavaScript everything except the
pictures can be read, and each element that needs JavaScript is marked.

**Strategy.** ``page/`` has the style and the parts of the script, which are joined here in order.
Each group is one payload (:mod:`holdfast.fleet.report.drawing.payload`); the page reads the
payload when it shows the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow.compute as pc

from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.findings.doctor import Doctor, ExaminedFleet, Track
from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.analysis.findings.finding import count
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag_over_time import (
    LagOverTime,
    lag_of_fleet,
    lag_of_group,
    readings_of,
)
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.analysis.group.rebalances import CommitTimes
from holdfast.fleet.analysis.times import group_since
from holdfast.fleet.columnar import ArrowTable
from holdfast.fleet.report.drawing.charts import charts
from holdfast.fleet.report.drawing.group_sections import (
    members_section,
    name_now,
    partitions_section,
    readers_section,
    state_section,
)
from holdfast.fleet.report.drawing.markup import (
    HtmlPage,
    Markup,
    asset,
    document,
    downtime,
    first_words,
    join,
    lean,
    name_of,
    number,
    script_of,
    shown_script,
    tag,
)
from holdfast.fleet.report.drawing.payload import COLOURS, group_payload, pack_text, pack_values
from holdfast.fleet.report.drawing.policies import policy_section
from holdfast.fleet.report.drawing.sections import (
    amount,
    code_link,
    codes_section,
    downtime_details,
    downtime_figure,
    figures,
    findings_section,
    group_figures,
    rebalance_section,
    table,
    when,
)
from holdfast.fleet.tables.reading import Source, Tables, read_tables
from holdfast.fleet.tables.storage.file_system import write_private

SCRIPTS = (
    "columns.js",
    "words.js",
    "timeline.js",
    "gestures.js",
    "tables.js",
    "heat.js",
    "partitions.js",
    "main.js",
)
MAX_GROUPS = 40


def write(
    source: Source | Tables,
    out: str | Path,
    *,
    title: str = "Consumer group report",
    groups: Sequence[str] | None = None,
    policies: Sequence[Mapping[str, Any]] = (),
    last_ms: int | None = None,
) -> Path:
    """Write the report of some tables as one HTML file, whose folder exists; return ``out``.

    ``source`` is as of :func:`holdfast.fleet.tables.reading.read_tables`, and other arguments as of
    :func:`render`.
    """
    tables = source if isinstance(source, Tables) else read_tables(source)
    out = Path(out)
    write_private(out, render(tables, title, groups, policies=policies, last_ms=last_ms))
    return out


def render(
    tables: Tables,
    title: str,
    groups: Sequence[str] | None = None,
    *,
    policies: Sequence[Mapping[str, Any]] = (),
    last_ms: int | None = None,
    since_ms: int | None = None,
    drawn_since_ms: int | None = None,
    live: LiveGroups = NOT_QUERIED,
    track: Track = iter,
    given: GivenSource = NOT_KNOWN,
    bar: Markup | None = None,
    readings: ArrowTable | None = None,
) -> HtmlPage:
    """Render the page.

    Parameters
    ----------
    groups : sequence of str, optional
        Groups to show, in this order; by default the worst, at most ``MAX_GROUPS``.
    policies : sequence of mapping
        Rows of a replay, for the comparison of policies.
    last_ms : int, optional
        End of the window in UTC milliseconds; by default when the tables' source was read.
    since_ms, drawn_since_ms : int, optional
        Begin of the window, and of the pictures, in UTC milliseconds; none by default.
    live : LiveGroups, optional
        Present states of the groups from coordinators.
    track : callable
        Iterates over the names of groups and may show progress.
    given : GivenSource, optional
        Origin of the tables, for the commands of findings.
    bar : Markup, optional
        Top bar of a served page.
    readings : Table, optional
        Rows of ``lag_history`` to draw; by default those of the window.
    """
    fleet = Doctor(
        tables=tables,
        groups=groups,
        last_ms=last_ms,
        since_ms=since_ms,
        live=live,
        track=track,
        source=given,
        commits=CommitTimes(tables, groups),
    ).fleet()
    shown = fleet.listed[:MAX_GROUPS]
    drawn = [_drawn(e.history, drawn_since_ms) for e in shown]
    loader, script = script_of("loader.js"), script_of(*SCRIPTS)
    is_drawn = any(len(history.timeline.row_partition) for history in drawn)
    elements = _packed(script, drawn if is_drawn else None)
    timeline = (
        Markup(lean(asset("timeline.html")).replace("\n", ""))  # where the script draws
        if is_drawn
        else tag("p", "No partition has had an owner: nothing to draw.")
    )
    lag = None
    if readings is None:
        readings, lag = readings_of(
            tables, since_ms, last_ms, fleet.names, [e.history.name for e in shown]
        )
    drawings = _Drawings(timeline=timeline, readings=readings, lag=lag)
    main = _main(tables, shown, fleet, drawings, policies)
    served = bar is not None
    follower = [script_of("live.js")] if served else []
    # The first group's columns and the script come first: unpacking, which is not done on the
    # browser's main thread, overlaps with reading and laying out everything else.
    first, later = elements[:3], elements[3:]
    top = [*first, shown_script(loader), *([bar] if served else []), _header(title, fleet)]
    bottom = [
        page_footer(polled=bool(fleet.polled), served=served),
        *later,
        *map(shown_script, follower),
    ]
    body = join([*top, main, *bottom])
    scripts = [loader, script, *follower]
    return document(f"{title}, {window_of(fleet)}", body, scripts, served=served)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawings:
    """The pictures over time of a page: the timeline, and lag for charts."""

    timeline: Markup
    readings: ArrowTable  # rows of ``lag_history`` of the groups with a section
    lag: LagOverTime | None  # lag of all groups together; by default that of ``readings``

    def of_fleet(self, fleet: ExaminedFleet) -> Markup | None:
        """Draw the charts of all groups together."""
        lag = lag_of_fleet(self.readings) if self.lag is None else self.lag
        covered = fleet.covered_ms
        known = fleet.figures.first_ms[fleet.figures.first_ms != 0]
        begins_ms = np.maximum(known, fleet.since_ms)
        return _charts(lag, begins_ms, fleet.figures.rebalances_ms, covered[1] if covered else 0)

    def of_group(self, history: GroupHistory) -> Markup | None:
        """Draw the charts of one group by topic."""
        own = self.readings.filter(pc.equal(self.readings["group"], history.name))
        # The first generation on record is no rebalance.
        at_ms = history.rebalances.at_ms[~history.rebalances.caused_by("first_seen")]
        if not history.first_ms:  # it has a lag at most
            return _charts(lag_of_group(own), at_ms[:0], at_ms[:0], 0)
        begin_ms = np.asarray([history.begin_ms], np.int64)
        return _charts(lag_of_group(own), begin_ms, at_ms, history.end_ms)


def _charts(lag: LagOverTime, begins_ms: I64, at_ms: I64, end_ms: int) -> Markup | None:
    """Draw lag and rebalances from the first of some moments, or from the first reading."""
    begins_ms = np.concatenate([begins_ms, lag.at_ms[:1]])
    return charts(lag, at_ms, int(begins_ms.min()), end_ms) if len(begins_ms) else None


def _main(
    tables: Tables,
    shown: Sequence[Examination],
    fleet: ExaminedFleet,
    drawings: _Drawings,
    policies: Sequence[Mapping[str, Any]],
) -> Markup:
    """Return what a page shows: of one group state and findings first, of several a table."""
    figures = tag("div", _fleet_figures(tables, fleet), id="figures")
    figures = join([origin(fleet.polled) or "", figures])
    timeline, policy = drawings.timeline, policy_section(policies)
    if len(fleet) <= 1:
        now = [part for e in shown for part in (_now_section(e, 0), _time_section(e, 0, drawings))]
        return tag("main", figures, *now, timeline, policy, *(_group_section(e, 0) for e in shown))
    groups = [
        section
        for i, e in enumerate(shown)
        for section in (
            _now_section(e, i, several=True),
            _time_section(e, i, drawings),
            _group_section(e, i),
        )
    ]
    codes, table = codes_section(fleet.codes), _fleet_table(shown, fleet)
    charts = drawings.of_fleet(fleet)
    return tag("main", figures, charts, table, timeline, policy, *groups, codes)


def _packed(script: str, drawn: Sequence[GroupHistory] | None) -> list[Markup]:
    """Return the script and its data as elements with packed text."""
    blobs = {"app": pack_text(script)}
    if drawn is not None:
        blobs["page"] = pack_values(
            {"groups": [history.name for history in drawn], "colours": COLOURS}
        )
        blobs |= {f"group-{i}": group_payload(history) for i, history in enumerate(drawn)}
    return [
        tag("script", Markup(text), type="application/octet-stream", id=key)
        for key, text in blobs.items()
    ]


def _drawn(history: GroupHistory, since_ms: int | None) -> GroupHistory:
    """Return the history of a group's picture, which begins at a moment."""
    if since_ms is None:
        return history
    stored = group_since(history.stored, 1000 * since_ms)
    return GroupHistory(stored=stored, last_ms=history.end_ms)


def window_of(fleet: ExaminedFleet) -> str:
    """Format the time that the generations of some groups cover."""
    covered = fleet.covered_ms
    if covered is None:
        return "no generation was found"
    return f"{when(covered[0], 'seconds')} to {when(covered[1], 'seconds')} UTC"


def _header(title: str, fleet: ExaminedFleet) -> Markup:
    what = "" if len(fleet) == 1 else f"{count(len(fleet), 'consumer group')}, "
    buttons = tag(
        "div",
        tag("button", "Light or dark", type="button", id="theme"),
        " ",
        tag("button", "Print", type="button", id="print"),
        class_="needs-js screen-only",
    )
    covered = tag("p", f"{what}{window_of(fleet)}", id="window")
    words = tag("div", tag("h1", title), covered, tag("div", _first_words(fleet.worst), id="first"))
    return tag("header", words, buttons)


def _first_words(worst: Examination | None) -> Markup | None:
    """Return a sentence about the presently worst group."""
    if worst is None:
        return None
    history, recorded = worst.history, worst.history.rebalances
    by_cause = {
        cause: float(np.nansum(recorded.downtime_upper_s[recorded.caused_by(cause)]))
        for cause in dict.fromkeys(recorded.cause)
    }
    since_s = history.live.known_s(history.settled_ms) if history.live is not None else None
    active = (name_now(f.code, since_s) for f in worst.findings if f.is_active)
    return first_words(
        history.name,
        history.downtimes_s,
        by_cause,
        (history.end_ms - history.begin_ms) / 1000,
        n_rebalances=history.n_rebalances,
        found=next(active, ""),
    )


def _fleet_figures(tables: Tables, fleet: ExaminedFleet) -> Markup:
    of, odd = fleet.figures, _oddities(tables, fleet)
    bounds = downtime_details(fleet.downtime_bounds_s, int(of.n_owned.sum()), fleet.idle_s)
    if len(fleet) == 1:
        history = fleet.listed[0].history
        return join([group_figures(history), figures(odd) if odd else "", bounds])
    longest = int(of.downtime_s.argmax()) if len(fleet) and of.downtime_s.any() else None
    items = [
        ("Groups", number(len(fleet)), ""),
        ("Partitions", number(int(of.n_rows.sum())), ""),
        ("Rebalances", number(int(of.n_rebalances.sum())), ""),
        ("Partitions moved", number(int(of.n_moved.sum())), ""),
        downtime_figure(0.0, 0.0)
        if longest is None
        else downtime_figure(*of.downtimes_s(longest), of.names[longest]),
    ]
    if (of.lag >= 0).any():
        items.append(("Lag", number(int(of.lag[of.lag >= 0].sum())), "records behind"))
    return join([figures([*items, *odd]), bounds])


def _oddities(tables: Tables, fleet: ExaminedFleet) -> list[tuple[str, str, str]]:
    counts = (
        ("anomalies", "Anomalies", int(fleet.figures.n_anomalies.sum())),
        ("bad_records", "Bad records", tables.stored("bad_records").num_rows),
    )
    return [(what, number(n), f"see the table {name}") for name, what, n in counts if n]


def _fleet_table(shown: Sequence[Examination], fleet: ExaminedFleet) -> Markup:
    heads = [
        ("Group", False),
        ("Partitions", True),
        ("Members", True),
        ("Rebalances", True),
        ("Moved", True),
        ("Downtime", True),
        ("Findings", False),
    ]
    rows = []
    for i, group in enumerate(fleet.listed):
        name = name_of(group.history.name)
        codes = [part for code in group.verdict.codes for part in (code_link(code), " ")]
        rows.append(
            [
                # The script reads the same words as the address of a section.
                tag(
                    "td",
                    tag("a", name, href=f"#{_address(group.history.name)}")
                    if i < len(shown)
                    else name,
                ),
                amount(group.history.n_partitions),
                amount(group.history.n_members),
                amount(group.history.n_rebalances),
                amount(group.history.rebalances.total("n_moved") or 0),
                (downtime(*group.history.downtimes_s), group.history.downtime_s),
                tag("td", *codes, class_="t"),
            ]
        )
    hidden = len(fleet) - len(shown)
    note = f" {hidden:,} more have no section of their own here." if hidden > 0 else ""
    lead = tag("p", f"Worst first. Downtime is that of a partition.{note}", class_="lead")
    body = table(heads, rows, caption="Groups", narrow=("Group", "Downtime", "Findings"))
    return tag("section", tag("h2", "Groups"), lead, body, class_="card")


def _address(group: str) -> str:
    return f"g={quote(group, safe='')}"


def _now_section(group: Examination, index: int, *, several: bool = False) -> Markup:
    """Return what a person looks for first: the state of a group, and its findings."""
    history, rebalances = group.history, group.history.rebalances
    bounds = downtime_details(rebalances.total_downtime_s, history.n_owned, rebalances.idle_s)
    return tag(
        "section",
        tag("h2", *(["Group ", name_of(history.name)] if several else ["Now"])),
        group_figures(history) if several else None,
        bounds if several else None,
        state_section(history, group.findings),
        findings_section(history, group.findings),
        class_="card group",
        id=f"now-{index}",
        data_group=index,
    )


def _time_section(group: Examination, index: int, drawings: _Drawings) -> Markup | None:
    """Return the charts of a group."""
    drawn = drawings.of_group(group.history)
    if drawn is None:
        return None
    title = tag("h2", "Lag and rebalances of ", name_of(group.history.name))
    named: dict[str, object] = {"id": f"time-{index}", "data_group": index}
    return tag("section", title, drawn, class_="card group", **named)


def _group_section(group: Examination, index: int) -> Markup:
    history = group.history
    return tag(
        "section",
        tag("h2", "Members, partitions and rebalances of ", name_of(history.name)),
        members_section(history, group.findings),
        partitions_section(history),
        readers_section(history) if history.kind.is_shared else None,
        rebalance_section(history.rebalances),
        class_="card group",
        id=_address(history.name),
        data_group=index,
    )


def origin(polled: str) -> Markup | None:
    """Return the text about what polls of coordinators do not show; None for other tables."""
    return tag("p", polled, class_="lead", id="origin") if polled else None


def page_footer(*, polled: bool, served: bool = False) -> Markup:
    """Return the last element of a page."""
    alone = "This page sends requests to its own server only."
    if not served:
        alone = "This file is complete: it loads nothing from the network."
    made = "Made by holdfast from the group's own records in the offsets topic."
    if polled:
        made = "Made by holdfast from polls of the group's coordinator."
    text = f"{made} {alone} Times are UTC."
    return tag("footer", tag("p", text))
