"""The sections of the page that need no JavaScript: figures, tables, sentences.

**Rules.** Every value passes through :mod:`holdfast.fleet.report.drawing.markup`, and every name
from the cluster through ``name_of``. A section that leaves rows out shows how many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from holdfast.core.model.columns import I64
from holdfast.core.names import harmless
from holdfast.fleet.analysis.findings.doctor import moment
from holdfast.fleet.analysis.findings.examination import FoundCode
from holdfast.fleet.analysis.findings.finding import (
    RULES,
    Finding,
    Rule,
    Severity,
    generations_of,
)
from holdfast.fleet.analysis.findings.finding import count as counted
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import lag_sums
from holdfast.fleet.analysis.group.rebalances import Rebalances
from holdfast.fleet.analysis.times import NONE, seconds, span
from holdfast.fleet.report.drawing.markup import (
    UP_TO,
    Markup,
    bounds,
    cost_bar,
    downtime,
    escape,
    join,
    name_of,
    number,
    prose,
    tag,
)
from holdfast.fleet.tables.columns.stored import REBALANCES

MAX_ROWS = 100
MAX_COSTLIEST = 20
_NARROW = [head for head, _ in REBALANCES.headings("timestamp", "cause", "gap_upper_seconds")]


def when(ms: int, timespec: str = "milliseconds") -> str:
    """Format UTC time for people."""
    return moment(ms, timespec).replace("T", " ").removesuffix("Z")


def amount(value: float | None, digits: int = 0) -> tuple[str, object]:
    """Return a cell: a number as people read it, and the value to sort by."""
    return number(value, digits), "" if value is None else value


def amount_s(value: float | None) -> tuple[str, object]:
    """Return a cell as :func:`amount`, in seconds."""
    return seconds(value), "" if value is None else value


def amount_span(value_s: float | None, mark: str = "") -> tuple[str, object]:
    """Return a cell as :func:`amount`: a duration, behind a mark."""
    is_known = value_s is not None and not math.isnan(value_s)
    return (mark + span(value_s), value_s) if is_known and value_s is not None else (NONE, "")


def shown_first(most: int, total: int, noun: str, how: str = "") -> Markup:
    """Return a line about a table: how many rows there are, and how many of them it shows."""
    text = counted(total, noun) if total <= most else f"{most} of {counted(total, noun)}"
    return tag("p", ", ".join(filter(None, [text, how])), class_="lead")


Figure = tuple[str, str, object]
"""What, how much, a remark."""


def figures(items: Iterable[Figure]) -> Markup:
    """Draw boxes of one figure each."""
    boxes = (
        tag("div", tag("dt", what), tag("dd", amount, tag("small", remark) if remark else None))
        for what, amount, remark in items
    )
    return tag("dl", join(boxes), class_="figures")


def table(
    heads: Sequence[tuple[str, bool]],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    kind: str = "",
    narrow: Sequence[str] = (),
) -> Markup:
    """Build a sortable table; a head is (text, numeric). A cell may be ready ``td`` markup.

    A narrow screen shows only the columns with the heads ``narrow``, until all are requested.
    """
    suffix = _numeric_suffix(heads)
    head = join(tag("th", text, scope="col", class_="n" if n else None) for text, n in heads)
    body = join(tag("tr", join(_cells(heads, row, suffix))) for row in rows)
    named = tag("caption", caption)
    inner = named + tag("thead", tag("tr", head)) + tag("tbody", body)
    texts = [text for text, _ in heads]
    classes = ["full sortable", kind, f"r{suffix + 1}" if suffix else ""]
    classes += narrow_classes([texts.index(text) for text in narrow])
    whole = tag("table", Markup(inner), class_=" ".join(filter(None, classes)))
    box = tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)
    return join([all_columns(len(heads)), box]) if narrow else box


def narrow_classes(columns: Sequence[int]) -> list[str]:
    """Return classes of a table of which a narrow screen shows only ``columns``."""
    return ["narrow", *(f"p{column + 1}" for column in columns)] if columns else []


def all_columns(count: int) -> Markup:
    """Return a checkbox before a narrow table that shows all of its columns."""
    return tag(
        "label", tag("input", type="checkbox"), f" all {count} columns", class_="all-columns"
    )


def _numeric_suffix(heads: Sequence[tuple[str, bool]]) -> int:
    """Return the first of the last columns that are all numeric or unnamed; else 0.

    Cells of the columns at the end need no class of their own.
    """
    suffix = len(heads)
    while suffix and (heads[suffix - 1][1] or not heads[suffix - 1][0]):
        suffix -= 1
    return suffix if 1 <= suffix <= 5 and len(heads) - suffix > 1 else 0


def _cells(
    heads: Sequence[tuple[str, bool]], row: Sequence[object], suffix: int
) -> Iterable[Markup]:
    for i, ((_, numeric), cell) in enumerate(zip(heads, row, strict=True)):
        plain = "n" if numeric and not 0 < suffix <= i else None
        if isinstance(cell, Markup) and cell.startswith("<td"):
            yield cell
        elif isinstance(cell, tuple):
            shown, value = cell
            same = str(value) == str(shown) or value == ""
            kind = plain if numeric else "t"
            yield tag("td", shown, data_v=None if same else value, class_=kind)
        else:
            yield tag("td", cell, class_=plain)


def group_figures(history: GroupHistory) -> Markup:
    """Draw the figures of one group, of its window."""
    rebalances, words = history.rebalances, history.kind.words
    avoidable = rebalances.total("n_avoidable_moves")
    topics = history.timeline.topics
    window = f"in {span(max(history.end_ms - history.begin_ms, 0) / 1000)}"
    lag = history.lag.lag
    items: list[Figure] = [
        (
            words.things.capitalize(),
            number(history.n_partitions),
            counted(len(topics), words.parent, words.parents) if topics else "",
        ),
        (
            "Members now",
            number(history.n_members),
            f"{counted(history.n_seen, 'member id')} {window}",
        ),
        ("Rebalances", number(history.n_rebalances), window),
        (
            f"{words.things.capitalize()} moved",
            number(rebalances.n_moved),
            "" if avoidable is None else f"{number(avoidable)} of them avoidable",
        ),
        downtime_figure(*history.downtimes_s),
    ]
    if (lag >= 0).any():
        remark = "records behind" + _oldest(history)
        items.append(("Lag", number(int(lag[lag >= 0].sum())), remark))
    return figures(items)


def _oldest(history: GroupHistory) -> str:
    """Return how old the oldest unread record is; empty if unknown."""
    (oldest_s,) = lag_sums(history.lag.stored, ["group"])["lag_seconds"].to_pylist()
    return f", {span(oldest_s)}" if oldest_s else ""


def downtime_figure(lower_s: float, upper_s: float, group: str = "") -> Figure:
    """Return a figure of the downtime; of the group with the longest one, its name."""
    what = "Longest downtime" if group else "Downtime"
    where = join(["a partition of ", name_of(group, 40)]) if group else "a partition"
    return what, downtime(lower_s, upper_s), where


def downtime_details(
    total_downtime_s: tuple[float, float], n_owned: int, idle_s: tuple[float, float] = (0.0, 0.0)
) -> Markup:
    """Return a line about the counting of a downtime, which opens to its bounds.

    Bounds are partition-seconds, at least and at most: of downtime, and without a waiting record.
    """
    words = (
        f"Partitions had no owner, or one that had stopped, for {bounds(*total_downtime_s)} "
        f"partition-seconds; {number(n_owned)} partitions had an owner at once."
    )
    if idle_s[1] > 0:
        words += f" {bounds(*idle_s)} more in which no record waited are not downtime."
    head = (
        UP_TO
        if bounds(*total_downtime_s) != seconds(total_downtime_s[0])
        else "the bounds of the downtime"
    )
    return tag("details", tag("summary", head), tag("p", words), class_="place")


def rebalance_section(rebalances: Rebalances) -> Markup:
    """Draw the rebalances of the window, the latest first; the costliest of many are folded.

    A column without known values is omitted.
    """
    n = len(rebalances.at_ms)
    title = tag("h3", "Rebalances")
    if not n:
        return tag("div", title, tag("p", "No rebalance was recorded."))
    cost = np.nan_to_num(rebalances.downtime_upper_s) * 1000 + rebalances.counts["n_moved"]
    costliest = np.argsort(-cost, kind="stable")[:MAX_COSTLIEST]
    folded = tag(
        "details",
        tag("summary", f"The {MAX_COSTLIEST} costliest"),
        _rebalance_table(rebalances, costliest, "The costliest rebalances"),
        class_="costliest",
    )
    latest = _rebalance_table(rebalances, np.arange(n)[::-1][:MAX_ROWS], "The latest rebalances")
    return tag(
        "div",
        title,
        shown_first(MAX_ROWS, n, "generation", "latest first"),
        folded if n > MAX_COSTLIEST else None,
        latest,
        tag("details", tag("summary", "How downtime is counted"), tag("p", _COUNTED)),
    )


_COUNTED = (
    "Downtime is in partition-seconds without an owner, at least to at most, as the broker saw it: "
    "the log says when a generation was settled, not when it began, nor when a member learned of "
    "it. Time in which, as is known, no record waited is shown apart as idle; if log ends do not "
    "show it, it counts as downtime."
)


def _rebalance_table(rebalances: Rebalances, shown: I64, caption: str) -> Markup:
    """Draw some rebalances in this order."""
    counts = [column.name for column in REBALANCES.headed_counts]
    names = [name for name in counts if (rebalances.counts[name] >= 0).any()]
    heads = REBALANCES.headings("timestamp", "cause", "generation", *names, "gap_upper_seconds")
    most = float(np.nanmax(rebalances.downtime_upper_s, initial=0.0))
    rows = (_rebalance_row(rebalances, int(i), names, most) for i in shown)
    return table(heads, rows, caption=caption, kind="jumps", narrow=_NARROW)


def _rebalance_row(r: Rebalances, i: int, names: Sequence[str], most: float) -> list[object]:
    """Return the cells of one rebalance; the script makes its "show" button of two of them."""

    def count(name: str) -> object:
        value = int(r.counts[name][i])
        if name == "n_moved":
            value += max(int(r.counts["n_moved_through_gap"][i]), 0)
        return amount(value if value >= 0 else None)

    upper = float(r.downtime_upper_s[i])
    return [
        when(int(r.at_ms[i])),
        _cause(r, i),
        int(r.generation[i]),
        *map(count, names),
        tag(
            "td",
            _downtime_cells(r, i),
            cost_bar(float(r.downtime_lower_s[i]), upper, most),
            data_v="" if math.isnan(upper) else upper,
        ),
    ]


def _cause(r: Rebalances, i: int) -> Markup:
    """Return the cause of one rebalance; its tooltip says how the cause is known."""
    cause, stated, right = r.cause[i].replace("_", " "), r.stated[i], r.confidence[i]
    if stated is not None:
        return join([cause or NONE, tag("span", " (stated)", title=stated)])
    if not cause or math.isnan(right) or r.cause[i] == "first_seen":
        return escape(cause or NONE)
    return tag("span", cause, title=f"inferred: right in {right:.0%} of measured live runs")


def _downtime_cells(r: Rebalances, i: int) -> str:
    """Return both bounds of one rebalance, and those of its idle time."""
    shown = bounds(float(r.downtime_lower_s[i]), float(r.downtime_upper_s[i]))
    idle = float(r.idle_upper_s[i])
    return f"{shown} ({bounds(float(r.idle_lower_s[i]), idle)} idle)" if idle > 0 else shown


def code_link(found: FoundCode) -> Markup:
    """Return a code as a lozenge with its meaning and a link; pale if it is past."""
    rule = RULES[found.code]
    when = "" if found.is_active else ", past"
    tooltip = f"{rule.name}: {rule.what} ({found.severity}{when})"
    classes = lozenge_classes(found.severity, is_active=found.is_active)
    return tag("a", found.code, class_=classes, title=tooltip, href=f"#{found.code}")


def lozenge_classes(severity: Severity, *, is_active: bool) -> str:
    """Return classes of the box of a code (``style.css``)."""
    return f"lozenge s-{severity}{'' if is_active else ' past'}"


@cache
def _explained(code: str) -> Markup:
    rule = RULES[code]
    summary = tag("summary", f"{code} {rule.name}")
    meaning = (tag("p", prose(rule.what)), _reasons(rule), _what_helps(rule))
    return tag("details", summary, tag("div", *meaning, id=code))  # a link inside opens it


def codes_section(codes: Iterable[str]) -> Markup | None:
    """Return the meaning of some codes, why they matter and what helps; None for no codes."""
    shown = [*map(_explained, sorted(set(codes)))]
    title = tag("h2", "What the codes mean")
    return tag("section", title, *shown, class_="card", id="codes") if shown else None


def _reasons(rule: Rule) -> Markup:
    reasons = (("Why it matters. ", rule.why), ("How it is detected. ", rule.how))
    return join(tag("p", tag("b", head), prose(text)) for head, text in reasons)


def _what_helps(rule: Rule) -> Markup:
    return tag("p", tag("b", "What helps. "), prose(rule.mend))


def findings_section(history: GroupHistory, findings: Sequence[Finding]) -> Markup:
    """Return a group's findings: active ones, with their effects folded, and then past ones."""
    title = tag("h3", "Findings")
    if not findings:
        return tag("div", title, tag("p", "Nothing was found."))
    active = [f for f in findings if f.is_active]
    past = [f for f in findings if not f.is_active]
    codes = {f.code for f in active}
    effects = {code: [f for f in active if f.follows == code] for code in codes}
    shown = [title, None if active else tag("p", "Nothing is active now.")]
    for f in active:
        if f.follows not in codes:
            shown += [_finding(history, f), _effects(history, effects.pop(f.code, []))]
    if past:
        head = tag("summary", f"{counted(len(past), 'finding')} past")
        shown.append(tag("details", head, *(_finding(history, f) for f in past), class_="past"))
    return tag("div", *shown)


def _effects(history: GroupHistory, effects: Sequence[Finding]) -> Markup | None:
    """Fold what follows from a finding; None without effects."""
    if not effects:
        return None
    names = ", ".join(f"{f.code} {f.rule.name}" for f in effects)
    head = tag("summary", f"It causes {names}")
    return tag("details", head, *(_finding(history, f) for f in effects), class_="effects")


def _finding(history: GroupHistory, finding: Finding) -> Markup:
    e = finding.evidence
    costs = (finding.cost_lower_s, finding.cost_upper_s)
    cost = ""
    if finding.cost_upper_s:
        cost = f"downtime of {downtime(*map(history.per_partition_s, costs))} a partition"
    follows = f"follows from {finding.follows}" if finding.follows else ""
    ended = "" if finding.ended_ms is None else f"ended {when(finding.ended_ms, 'seconds')}"
    notes = [ended, str(finding.basis), cost, follows]
    where = [generations_of(e)] if e.generations.total else []
    if e.from_ms >= 0:
        where.append(f"{when(e.from_ms, 'seconds')} to {when(e.to_ms, 'seconds')}")
    where += [names.text(", ", 5) for names in (e.members, e.partitions) if names.total]
    middle, wide = (e.from_ms + e.to_ms) // 2, max((e.to_ms - e.from_ms) // 5, 500)
    jump = tag("button", "show", type="button", class_="jump", data_moment=middle, data_wide=wide)
    head = tag(
        "p",
        tag(
            "span",
            finding.code,
            class_=lozenge_classes(finding.severity, is_active=finding.is_active),
        ),
        " ",
        tag("strong", finding.rule.name),
        f" ({finding.severity}; {', '.join(filter(None, notes))}) ",
        jump if e.from_ms >= 0 else None,
    )
    return tag(
        "div",
        head,
        tag("p", finding.text),
        tag("p", harmless("; ".join(where)), class_="lead") if where else None,
        _what_helps(finding.rule),
        tag("p", tag("code", finding.command)) if finding.command else None,
        tag(
            "details",
            tag("summary", "Why it matters, how it is detected"),
            tag("p", prose(finding.rule.what)),
            _reasons(finding.rule),
            tag("p", f"Cost: {bounds(*costs)} partition-seconds.") if cost else None,
        ),
        class_="finding",
    )
