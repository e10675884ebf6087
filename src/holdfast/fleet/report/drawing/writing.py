"""One self-contained HTML file from tables: payloads, sections, policy, script, style.

**Rules.** The file loads nothing: its policy allows the loader, the script that the loader unpacks
and one style, each by its hash, and no connection. Names from the cluster are escaped or packed.
The same tables give the same file, byte for byte.

**Strategy.** ``page/`` holds the style and the parts of the script, which are joined here in order.
Each group is one payload (:mod:`holdfast.fleet.report.drawing.packing`); the page reads the payload
when it shows the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.core.model.columns import I64
from holdfast.fleet.report.columns.timeline import Timeline, last_time
from holdfast.fleet.report.drawing.body import page_body, window_of
from holdfast.fleet.report.drawing.document import (
    ServedFrame,
    asset,
    document,
    policy_of,
    script_of,
    shown_script,
    style_of,
)
from holdfast.fleet.report.drawing.lag_section import lag_columns
from holdfast.fleet.report.drawing.packing import pack, pack_text, pack_values
from holdfast.fleet.report.drawing.palette import COLOURS
from holdfast.fleet.report.drawing.policies import policy_section
from holdfast.fleet.report.findings.examination import examine
from holdfast.fleet.report.findings.facts import Facts, read_facts
from holdfast.fleet.report.progress import Track
from holdfast.fleet.tables.reading import Source, Tables, read_tables
from holdfast.fleet.tables.storage.private import write_private

SCRIPTS = (
    "columns.js",
    "words.js",
    "timeline.js",
    "gestures.js",
    "tables.js",
    "heat.js",
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
    track: Track = iter,
    given: GivenSource = NOT_KNOWN,
) -> Path:
    """Write the report of some tables as one HTML file.

    Parameters
    ----------
    source : path, mapping or Tables
        Folder of tables, or columns in memory (:func:`holdfast.fleet.tables.reading.read_tables`).
    out : path
        File to write; its folder must exist.
    title : str
        Heading.
    groups : sequence of str, optional
        Groups to show, in this order; by default the worst, at most ``MAX_GROUPS``.
    policies : sequence of mapping
        Rows of ``holdfast replay`` (:mod:`holdfast.fleet.report.drawing.policies`).
    last_ms : int, optional
        End of the window in UTC milliseconds; by default the last time in the tables.
    track : callable
        Passes the names of groups on, one by one, and may show how far it is.
    given : GivenSource, optional
        Where the tables come from, for the commands of findings.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    SourceError
        If the tables cannot be read.
    """
    tables = source if isinstance(source, Tables) else read_tables(source)
    out = Path(out)
    text = render(
        tables, title, groups, policies=policies, last_ms=last_ms, track=track, given=given
    )
    write_private(out, text)
    return out


def render(
    tables: Tables,
    title: str,
    groups: Sequence[str] | None = None,
    *,
    policies: Sequence[Mapping[str, Any]] = (),
    last_ms: int | None = None,
    track: Track = iter,
    given: GivenSource = NOT_KNOWN,
    frame: ServedFrame | None = None,
) -> str:
    """The text of the file; with ``frame``, of a page that is served."""
    last = last_ms if last_ms is not None else last_time(tables)
    names = tables.groups if groups is None else tuple(groups)
    examined = [examine(read_facts(tables, name, last, given)) for name in track(names)]
    if groups is None:
        examined.sort(key=lambda e: (e.badness[0], *e.facts.cost), reverse=True)
    shown = examined[:MAX_GROUPS]
    page = pack_values({"groups": [e.facts.group for e in shown], "colours": COLOURS})
    payloads = {
        "app": pack_text(script_of(SCRIPTS)),
        "page": page,
        **{f"group-{i}": group_payload(e.facts, tables) for i, e in enumerate(shown)},
    }
    body = page_body(
        tables,
        title,
        shown,
        examined,
        extra=[policy_section(policies)],
        payloads=payloads,
        loader=shown_script(_loader()),
        frame=frame,
    )
    return document(
        f"{title}, {window_of(examined)}", body, style=_style(frame), policy=report_policy(frame)
    )


def group_payload(facts: Facts, tables: Tables) -> str:
    """Columns of one group for the script (see ``page/timeline.js``)."""
    t, r = facts.timeline, facts.rebalances
    edges, owner, step, pause, counts = _folded(t)
    cause, moved, stood_ms = _rebalance_of(facts)
    causes = tuple(c.replace("_", " ") for c in dict.fromkeys(("", *r.cause)))
    columns: dict[str, npt.ArrayLike] = {
        "edge+": edges,
        "row_topic": t.row_topic,
        "row_number": t.row_partition + 1,  # 0: a connector itself
        "row_segments": counts,
        "seg_owner": owner,
        "seg_step": step,
        "seg_pause": pause,
        "member_identity": t.identities.identity,
        "member_host": t.identities.host,
        "gen_edge+": np.searchsorted(edges, t.generations.at_ms - t.first_ms),
        "gen_number": np.maximum(t.generations.number, 0),
        "gen_members": np.maximum(t.generations.n_members, 0),
        "gen_cause": np.asarray([causes.index(c) for c in cause], dtype=np.int64),
        "gen_moved": moved,
        "gen_stood_least": stood_ms[0],
        "gen_stood_most": stood_ms[1],
    }
    values = {
        "t0": t.first_ms,
        "topics": t.topics,
        "joint": facts.kind.words.joint,
        "members": t.members,
        "identities": t.identities.names,
        "hosts": t.identities.hosts,
        "causes": causes,
    }
    assert len(cause) == len(moved) == len(t.generations.number)
    lag, names = lag_columns(tables, t.group)
    return pack({**columns, **lag}, {**values, **names})


def _folded(t: Timeline) -> tuple[I64, I64, I64, I64, I64]:
    """Segments with their pauses folded in: every end is an edge, a generation or the window's end.

    Returns
    -------
    edges : int64[n_edges]
        Milliseconds since the first, ascending.
    owner, step, pause : int64[n]
        0 nobody, 1 + member; edges to go; milliseconds at the end in which it is paused.
    counts : int64[n_rows]
        Segments of each row.
    """
    times = np.append(t.generations.at_ms, (t.first_ms, t.last_ms))
    edges = np.unique(times) - t.first_ms
    first = np.zeros(len(t.paused), dtype=bool)
    first[t.start[:-1]] = True
    ends = np.zeros(len(t.paused), dtype=bool)  # a pause at the end of its owner's segment
    ends[1:] = t.paused[1:] & ~t.paused[:-1] & ~first[1:] & (t.owner[1:] == t.owner[:-1])
    own = np.flatnonzero(~ends)
    followed = np.append(ends[1:], False)[own]
    tail = np.where(followed, own + 1, own)
    pause = np.where(t.paused[tail], t.to_ms[tail] - t.from_ms[tail], 0)
    end = np.searchsorted(edges, t.to_ms[tail] - t.first_ms)
    row = np.searchsorted(t.start, own, side="right") - 1
    step = np.diff(end, prepend=0)
    heads = np.flatnonzero(first[own])
    step[heads] = end[heads]
    owner = t.owner[own].astype(np.int64) + 1
    return edges, owner, step, pause, np.bincount(row, minlength=len(t.row_partition))


def _rebalance_of(facts: Facts) -> tuple[list[str], I64, tuple[I64, I64]]:
    """Cause, moved partitions, and partition-milliseconds that stood still, of each generation.

    They are "" and 0 where it has no rebalance; what stood still is at least and at most so much.
    """
    r, index = facts.rebalances, facts.rebalance_index
    places = np.full(len(facts.generations.number), -1)
    places[index[index >= 0]] = np.flatnonzero(index >= 0)
    gap = np.maximum(r.counts["n_moved_through_gap"], 0)
    moved = np.append(np.maximum(r.counts["n_moved"], 0) + gap, 0)
    words = np.asarray([*r.cause, ""], dtype=object)[places].tolist()
    least, most = (
        np.append(np.rint(1000 * np.nan_to_num(bound)), 0).astype(np.int64)[places]
        for bound in (r.pause_lower_s, r.pause_upper_s)
    )
    return [cause.replace("_", " ") for cause in words], moved[places], (least, most)


def report_policy(frame: ServedFrame | None = None) -> str:
    """The policy of every page that :func:`render` makes, with ``frame`` or without one."""
    own = [_loader(), script_of(SCRIPTS)]
    if frame is None:
        return policy_of(own, _style(frame))
    return policy_of([*own, frame.script], _style(frame), served=True)


def _loader() -> str:
    return script_of(("loader.js",))


def _style(frame: ServedFrame | None) -> str:
    own = asset("style.css")
    return style_of(own) if frame is None else style_of(own, frame.style)
