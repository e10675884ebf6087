"""Ownership as a trace for Perfetto or chrome://tracing: a process per group, a thread per row.

**Rules.** The Trace Event Format, JSON form: times in microseconds, complete events (``X``) for
intervals, instant events (``i``) for generations, metadata (``M``) for names. Names are JSON
strings of visible text; the viewer treats them as text.

References: "Trace Event Format", Google, the document behind chrome://tracing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.names import visible
from holdfast.fleet.report.columns.timeline import Timeline, build_timeline, last_time
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.private import open_private

NOBODY, PAUSED = "grey", "white"  # names of colours that the viewer reserves


def write_trace(tables: Tables, out: Path, *, groups: Sequence[str] | None = None) -> Path:
    """Write the trace of some groups, by default of all, to the JSON file ``out``.

    ``tables`` has ``generations`` and ``assignments``, and may have ``pauses`` and ``members``.
    """
    last = last_time(tables)
    with open_private(out) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[')
        separator = "\n"
        for process, name in enumerate(groups if groups is not None else tables.groups, 1):
            for event in trace_events(build_timeline(tables, name, last), process):
                file.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        file.write("\n]}\n")
    return out


def trace_events(timeline: Timeline, process: int) -> Iterator[dict[str, Any]]:
    """Events of one group, as process number ``process``."""
    yield _meta("process_name", process, 0, name=visible(timeline.group))
    for row in range(len(timeline.row_partition)):
        topic, partition = timeline.topics[timeline.row_topic[row]], timeline.row_partition[row]
        name = visible(topic) if partition < 0 else f"{visible(topic)}-{partition}"  # a connector
        yield _meta("thread_name", process, row + 1, name=name)
        yield _meta("thread_sort_index", process, row + 1, sort_index=row + 1)
        for i in range(int(timeline.start[row]), int(timeline.start[row + 1])):
            yield _interval(timeline, i, process, row + 1)
    g = timeline.generations
    for i in range(len(g.number)):
        yield {
            "ph": "i",
            "s": "p",
            "pid": process,
            "tid": 0,
            "ts": int(g.at_ms[i]) * 1000,
            "name": f"generation {g.number[i]}",
            "args": {"members": int(g.n_members[i]), "state": visible(g.state[i])},
        }


def _interval(timeline: Timeline, i: int, process: int, thread: int) -> dict[str, Any]:
    owner, begin = int(timeline.owner[i]), int(timeline.from_ms[i])
    event: dict[str, Any] = {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": begin * 1000,
        "dur": (int(timeline.to_ms[i]) - begin) * 1000,
    }
    if owner < 0:
        return {**event, "name": "no owner", "cname": NOBODY}
    identity = timeline.identities.names[timeline.identities.identity[owner]]
    member = visible(timeline.members[owner])
    event["args"] = {"member_id": member}
    if timeline.paused[i]:
        return {**event, "name": f"{visible(identity)} paused (inferred)", "cname": PAUSED}
    return {**event, "name": visible(identity)}


def _meta(kind: str, process: int, thread: int, /, **args: object) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}
