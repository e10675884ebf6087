"""The page of the index: a form, one row a group, links to sort and to page.

**Rules.** Everything works without JavaScript. Every value passes through
:mod:`holdfast.fleet.report.drawing.markup`; a group's name in a link is one quoted value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from typing import Final
from urllib.parse import urlencode

from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.findings.examination import FoundCode
from holdfast.fleet.analysis.findings.finding import RULES, count
from holdfast.fleet.analysis.group.live import LiveGroups
from holdfast.fleet.analysis.times import NONE, span
from holdfast.fleet.report.drawing.charts import charts
from holdfast.fleet.report.drawing.group_sections import name_now
from holdfast.fleet.report.drawing.markup import (
    HtmlPage,
    Markup,
    document,
    downtime,
    first_words,
    join,
    name_of,
    number,
    script_of,
    shown_script,
    spark,
    tag,
)
from holdfast.fleet.report.drawing.sections import (
    Figure,
    all_columns,
    code_link,
    codes_section,
    downtime_details,
    downtime_figure,
    figures,
    narrow_classes,
    when,
)
from holdfast.fleet.report.drawing.writing import origin, page_footer
from holdfast.fleet.report.serving.group_index import (
    RANGES,
    SEVERITIES,
    SLICES,
    SORTS,
    USUAL_VIEW,
    GroupIndex,
    IndexView,
    Verdicts,
    cut,
    select,
)
from holdfast.fleet.report.serving.live import rebalancing_s
from holdfast.fleet.report.serving.ranges import FleetView, ServedTables
from holdfast.fleet.report.serving.served_fleet import ServedState, UpdaterState

VERSION: Final = version("kafka-holdfast")
EVERY_MS = 1000
"""Poll interval of a page for newer data."""

MOST_TAGS: Final = 8
"""Tags of active findings above the list; the others are folded, so that the list is in sight."""

NO_BATCH = tag("p", "Groups appear here after the first batch of records was read.")

_NARROW = ("group", "state", "findings")
_NUMBERS = frozenset({"members", "rebalances", "downtime", "lag", "lag_seconds"})


def bar_of(
    served: ServedTables,
    state: ServedState,
    live: LiveGroups,
    words: Mapping[str, str],
    *,
    group: bool,
) -> Markup:
    """Return the head of a served page: navigation, search, time range, and age of the data.

    ``words`` is the query of the address; ``group`` says whether the page is of one group.
    """
    kept = {key: words[key] for key in ("from", "to") if words.get(key)}
    home = "/" + ("?" + urlencode(kept) if kept else "")
    search = tag(
        "form",
        tag("input", type="search", name="find", placeholder="group or code", aria_label="search"),
        *(tag("input", type="hidden", name=key, value=value) for key, value in kept.items()),
        method="get",
        action="/",
        role="search",
    )
    return join(
        [
            tag(
                "nav",
                tag("a", "holdfast", href=home, class_="brand"),
                tag("span", VERSION, class_="place"),
                tag("a", "Groups", href=home, aria_current=None if group else "page"),
                tag("a", "API", href="/api/openapi.json"),
                tag("a", "Metrics", href="/metrics"),
                search if group else None,
                tag("button", "Theme", type="button", id="live-theme", class_="needs-js"),
                class_="bar top",
                aria_label="pages",
            ),
            tag(
                "div",
                tag(
                    "nav",
                    *_ranges(served, words),
                    class_="ranges",
                    id="ranges",
                    aria_label="time range",
                ),
                _said(served, state, live, group=group),
                class_="bar status",
            ),
        ]
    )


def _ranges(served: ServedTables, words: Mapping[str, str]) -> Iterator[Markup]:
    """Yield links to the ranges; the present one is marked."""
    chosen = words.get("from") or _usual(served)
    if words.get("to"):
        chosen = ""
    rest = {
        key: value for key, value in words.items() if key not in ("from", "to", "page", "token")
    }
    path = "/group?" if "name" in rest else "/?"
    for key, name in RANGES.items():
        address = path + urlencode({**rest, "from": key})
        yield tag("a", name, href=address, aria_current="true" if key == chosen else None)
    if (words.get("from") and chosen not in RANGES) or words.get("to"):
        first, last = words.get("from", "the first record"), words.get("to", "now")
        yield tag("span", f"{first} to {last}", class_="place")


def _usual(served: ServedTables) -> str:
    """Return the range of an address without one; empty if it is none that pages offer."""
    if served.since_ms is None or served.last_ms is None:
        return "all"
    return "1h" if served.last_ms - served.since_ms == 3_600_000 else ""


def _said(served: ServedTables, state: ServedState, live: LiveGroups, *, group: bool) -> Markup:
    """Return how old the data are, and the state of the updater."""
    return tag(
        "div",
        tag(
            "span",
            _tables_words(served, state, group=group) + _live_words(live),
            id="live-said",
            role="status",
            class_="old" if state.is_stale else None,
        ),
        tag(
            "span",
            updater_text(state.updater_state),
            id="live-updater",
            role="status",
            class_="old" if state.updater_state.trouble else None,
        ),
        tag("button", "Pause", type="button", id="live-pause", class_="needs-js"),
        id="live",
        class_="said",
        data_version=state.version,
        data_examined=state.n_examined,
        data_every=EVERY_MS,
        data_page="group" if group else "index",
    )


def _tables_words(served: ServedTables, state: ServedState, *, group: bool) -> str:
    """Return the time of the tables, and how many groups are examined."""
    if served.is_from_coordinators:
        return f"lag as of {when(served.read_ms, 'seconds')} UTC (from coordinators)"
    if not served.number:
        return "no groups yet"
    words = f"read {when(served.read_ms, 'seconds')} UTC"
    if state.is_stale:
        looked_ms = served.read_ms - round(served.age.seconds * 1000)
        words = f"log ends are of {when(looked_ms, 'seconds')} UTC"
        if not state.is_updated_here:
            words += ": is watch running?"
    if state.n_examined < state.n_groups and not group:
        words += f"; {number(state.n_examined)} of {number(state.n_groups)} groups examined"
    if state.failed:
        words += "; the present folder cannot be read"
    return words


def _live_words(live: LiveGroups) -> str:
    """Return the time of the coordinators' states."""
    if live.seen is None:
        return ""
    return f"; states of {when(live.seen.queried_ms, 'seconds')[11:]} UTC"


def updater_text(updater_state: UpdaterState) -> str:
    """Describe the updater where it is not well or not ready; else return an empty text."""
    if updater_state.trouble:
        since = when(updater_state.since_ms, "seconds")
        return f"nothing new since {since} UTC: {updater_state.trouble}"
    return updater_state.doing


def index_page(
    served: ServedTables, state: ServedState, view: IndexView, found: FleetView
) -> HtmlPage:
    """Return the whole page; a group without a verdict has not been examined yet."""
    script = script_of("live.js")
    index, verdicts, live = found.index, found.verdicts, found.live
    since_s = rebalancing_s(index, live)
    worst_first = select(index, verdicts, IndexView())
    rows = worst_first if view == IndexView() else select(index, verdicts, view)
    title = f"Consumer groups of {state.where}"
    main = tag(
        "main",
        origin(served.polled),
        tag(
            "div",
            _fleet_words(index, verdicts, since_s, worst_first),
            _fleet_figures(index),
            _wrongs(index, verdicts, view),
            _charts(index),
            id="fleet",
        ),
        tag(
            "section",
            _form(index, view),
            tag(
                "div",
                _rows(index, verdicts, view, rows, since_s)
                if served.number or served.is_from_coordinators
                else NO_BATCH,
                downtime_details(index.total_downtime_s, int(index.figures.n_owned.sum())),
                id="groups",
            ),
            class_="card",
        ),
        codes_section(RULES),
    )
    header = tag("header", tag("h1", title))
    bar = bar_of(served, state, live, view.words, group=False)
    body = join(
        [
            bar,
            header,
            main,
            page_footer(polled=bool(served.polled), served=True),
            shown_script(script),
        ]
    )
    return document(", ".join([title, *_covered(index)]), body, [script], served=True)


def _covered(index: GroupIndex) -> list[str]:
    """Return the time that the records cover; empty without records."""
    first, last = index.covered_ms
    return [f"{when(first, 'seconds')} to {when(last, 'seconds')} UTC"] if last else []


def _fleet_words(
    index: GroupIndex, verdicts: Verdicts, since_s: Mapping[str, float], worst_first: I64
) -> Markup | None:
    """Return the covered time, and the main problem in a sentence."""
    if not (index.has_history and len(index.names)):
        return None
    first, last = index.covered_ms
    i = int(worst_first[0])
    name, share = index.names[i], float(index.cause_share[i])
    codes = verdicts[name].codes if name in verdicts else ()
    active = [one for one in codes if one.is_active]
    words = first_words(
        name,
        index.figures.downtimes_s(i),
        {index.cause[i]: share, "": 1.0 - share},
        (last - first) / 1000,
        n_rebalances=int(index.figures.n_rebalances[i]),
        found=name_now(active[0].code, since_s.get(name)) if active else "",
    )
    return join([*(tag("p", text, class_="lead") for text in _covered(index)), words])


def _charts(index: GroupIndex) -> Markup | None:
    """Draw lag and rebalances of all groups over time; None without a record and a reading."""
    lag, (begin_ms, end_ms) = index.lag_over_time, index.covered_ms
    if not end_ms:
        if not len(lag.at_ms):
            return None
        begin_ms, end_ms = int(lag.at_ms[0]), int(lag.at_ms[-1])
    return charts(lag, index.figures.rebalances_ms, begin_ms, end_ms)


def _wrongs(index: GroupIndex, verdicts: Verdicts, view: IndexView) -> Markup | None:
    """Return a tag for each active finding of any group, the worst first; past ones are folded."""
    seen = [verdicts[name].codes for name in index.names if name in verdicts]
    by_id = {id(codes): codes for codes in seen}  # of very many groups these are few
    alike = Counter[tuple[FoundCode, ...]]()
    for at, n_same in Counter(map(id, seen)).items():
        alike[by_id[at]] += n_same
    active, past, worst = Counter[str](), Counter[str](), dict[str, int]()
    for codes, n_alike in alike.items():
        for one in codes:
            (active if one.is_active else past)[one.code] += n_alike
            if one.is_active:
                worst[one.code] = max(one.severity.rank, worst.get(one.code, 0))
    if not (active or past):
        return None
    ordered = sorted(active, key=lambda code: (-worst[code], -active[code], code))
    tags = [_wrong(code, active[code], f"s-{SEVERITIES[worst[code]]}", view) for code in ordered]
    more = [f"{len(tags) - MOST_TAGS} more active"] if len(tags) > MOST_TAGS else []
    more += [f"{count(len(past), 'finding')} past"] if past else []
    folded = tag(
        "details",
        tag("summary", ", ".join(more)),
        *tags[MOST_TAGS:],
        *(_wrong(code, n, "past", view) for code, n in sorted(past.items())),
        class_="past",
    )
    return tag(
        "section",
        tag("h2", "What is wrong"),
        *(tags[:MOST_TAGS] or [tag("p", "Nothing is active now.")]),
        folded if more else None,
        class_="wrongs",
    )


def _wrong(code: str, n_groups: int, look: str, view: IndexView) -> Markup:
    """Return a finding as a link to its groups."""
    rule = RULES[code]
    address = _address(replace(IndexView(), find=code, begin=view.begin, end=view.end))
    words = f"{code} {rule.name}: {count(n_groups, 'group')}"
    return tag("a", words, href=address, class_=f"lozenge {look}", title=rule.what)


def _fleet_figures(index: GroupIndex) -> Markup:
    behind = index.figures.lag[index.figures.lag >= 0]
    history: list[Figure] = [
        ("Members", number(int(index.figures.n_members.sum())), ""),
        ("Rebalances", number(int(index.figures.n_rebalances.sum())), ""),
        _longest_downtime(index),
    ]
    known = history if index.has_history else []
    lag = [("Lag", number(int(behind.sum())), "records behind")] if len(behind) else []
    return figures([("Groups", number(len(index.names)), ""), *known, *lag])


def _longest_downtime(index: GroupIndex) -> Figure:
    """Return the figure of the group with the longest downtime."""
    if not index.figures.downtime_s.any():
        return downtime_figure(0.0, 0.0)
    i = int(index.figures.downtime_s.argmax())
    return downtime_figure(*index.figures.downtimes_s(i), index.names[i])


def _form(index: GroupIndex, view: IndexView) -> Markup:
    find = tag(
        "input", type="search", name="find", id="find", value=view.find, placeholder="group or code"
    )
    states = [_option("", "any", view.state), *(_option(s, s, view.state) for s in index.states)]
    least = [
        _option("", "any", view.least),
        *(_option(s, f"{s} or worse", view.least) for s in SEVERITIES),
    ]
    return tag(
        "form",
        tag("label", "Find", find),
        tag("label", "State", tag("select", *states, name="state")),
        tag("label", "Finding", tag("select", *least, name="least")),
        tag("input", type="hidden", name="sort", value=view.sort),
        tag("input", type="hidden", name="order", value="down" if view.falls else "up"),
        *(
            tag("input", type="hidden", name=key, value=value)
            for key, value in view.words.items()
            if key in ("from", "to")
        ),
        tag("button", "Show", type="submit"),
        class_="bar",
        method="get",
        action="/",
        id="view",
    )


def _option(value: str, text: str, chosen: str) -> Markup:
    return tag("option", text, value=value, selected=value == chosen)


def _rows(
    index: GroupIndex,
    verdicts: Verdicts,
    view: IndexView,
    rows: I64,
    since_s: Mapping[str, float],
) -> Markup:
    shown, page, n_pages = cut(rows, view.page)
    view = replace(view, page=page)
    head = tag("tr", *(_head(view, column) for column in SORTS))
    most = int(index.figures.lag.max(initial=0))
    body = join(_row(index, verdicts, since_s, int(i), view=view, most_lag=most) for i in shown)
    shown_narrow = narrow_classes([[*SORTS].index(name) for name in _NARROW])
    classes = " ".join(["full", *shown_narrow])
    parts = (tag("caption", "Groups"), tag("thead", head), tag("tbody", body))
    table = tag("table", *parts, class_=classes)
    wide = tag("div", table, class_="wide", tabindex="0", role="region", aria_label="groups")
    if not len(shown):
        return join([_pager(view, len(rows), n_pages), tag("p", "No group is like that.")])
    return join(
        [_pager(view, len(rows), n_pages, _legend(index, most)), all_columns(len(SORTS)), wide]
    )


def _legend(index: GroupIndex, most_lag: int) -> Markup:
    """Return what the small pictures of the rows mean."""
    texts = []
    if most_lag > 0:
        texts.append(
            f"Bar under a lag: logarithmic scale, full at {number(most_lag)} records, the greatest "
            "lag of a group; line: its last readings."
        )
    first, last = index.covered_ms
    if last and index.recent.any():
        length = span((last - first) / 1000 / SLICES)
        texts.append(f"Bars under rebalances: the time range in {SLICES} parts of {length}.")
    return tag("span", " ".join(texts), class_="legend")


def _pager(view: IndexView, n_groups: int, n_pages: int, legend: Markup | None = None) -> Markup:
    words = count(n_groups, "group")
    if n_pages > 1:
        words += f", page {number(view.page)} of {number(n_pages)}"
    steps = [("First", 1), ("Back", view.page - 1), ("Next", view.page + 1), ("Last", n_pages)]
    links = [
        tag("a", text, href=_address(replace(view, page=page)))
        for text, page in steps
        if 1 <= page <= n_pages and page != view.page
    ]
    return tag("p", tag("span", words, class_="place"), *links, legend, class_="bar pages")


def _head(view: IndexView, column: str) -> Markup:
    here = view.sort == column
    # A name is read from the top, a number from the greatest down.
    falls = not view.falls if here else column not in ("group", "state")
    address = _address(replace(view, sort=column, falls=falls, page=1))
    sort = ("descending" if view.falls else "ascending") if here else None
    return tag(
        "th",
        tag("a", SORTS[column], href=address, class_="sort"),
        scope="col",
        class_="n" if column in _NUMBERS else None,
        aria_sort=sort,
    )


def _address(view: IndexView) -> str:
    return "/?" + urlencode(view.words)


def group_address(group: str, view: IndexView = USUAL_VIEW) -> str:
    """Return path and query of a group's page, in the time range of a view."""
    within: dict[str, str] = {key: view.words[key] for key in ("from", "to") if key in view.words}
    return "/group?" + urlencode({"name": group, **within})


def _row(
    index: GroupIndex,
    verdicts: Verdicts,
    since_s: Mapping[str, float],
    i: int,
    *,
    view: IndexView,
    most_lag: int,
) -> Markup:
    name = index.names[i]
    lag = int(index.figures.lag[i])
    lag_s = float(index.lag_s[i])
    history = (
        join([number(int(index.figures.n_rebalances[i])), _bars(index, i)]),
        downtime(*index.figures.downtimes_s(i)),
    )
    cells = (
        number(int(index.figures.n_members[i])) if index.has_history else NONE,
        join([number(lag), _lag_scale(lag, most_lag), _lag_line(index, i)]) if lag >= 0 else NONE,
        NONE if math.isnan(lag_s) else span(lag_s),
        *(history if index.has_history else (NONE,) * len(history)),
    )
    return tag(
        "tr",
        tag("td", tag("a", name_of(name), href=group_address(name, view))),
        tag("td", *_state(index.figures.state[i], since_s.get(name)), class_="t"),
        *(tag("td", text, class_="n") for text in cells),
        tag("td", _lozenges(verdicts, name, since_s.get(name)), class_="t"),
    )


def _state(state: str, since_s: float | None) -> list[object]:
    """Return a state, or for how long the group rebalances."""
    if since_s is None:
        return [state]
    return [tag("span", f"rebalancing for {span(since_s)}", class_="now-for", title=state)]


def _bars(index: GroupIndex, i: int) -> Markup:
    if not index.recent[i].any():
        return Markup("")
    return spark(
        index.recent[i], f"{number(int(index.figures.n_rebalances[i]))} rebalances over the time"
    )


def _lag_scale(lag: int, most: int) -> Markup:
    """Draw a lag beside the greatest one of all groups, on a logarithmic scale."""
    if not lag:
        return Markup("")
    shown = math.log1p(lag) / math.log1p(most)
    return tag("meter", value=f"{shown:.2f}", title=f"the greatest lag is {number(most)}")


def _lag_line(index: GroupIndex, i: int) -> Markup:
    """Draw the lag over time; nothing for a constant 0, or for one reading."""
    lags = index.lags[i]
    known = lags[lags >= 0]
    if len(known) < 2 or known.max() <= 0:
        return Markup("")
    return spark(lags, f"lag: {number(int(known[0]))} to {number(int(known[-1]))}", line=True)


def _lozenges(verdicts: Verdicts, name: str, since_s: float | None) -> Markup:
    if name not in verdicts:
        return tag("span", "not examined yet", class_="place")
    codes = verdicts[name].codes
    return join(
        _lozenge(one, name_now(one.code, since_s) if at == 0 and one.is_active else "")
        for at, one in enumerate(codes)
    )


@lru_cache(maxsize=1000)
def _lozenge(found: FoundCode, name: str) -> Markup:
    classes = "found" if found.is_active else "found past"
    return tag("span", code_link(found), f" {name} " if name else " ", class_=classes)
