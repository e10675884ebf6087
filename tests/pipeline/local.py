"""The jobs of the pipeline without Spark: the same tasks over the same records, in this process."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.pipeline.history import taken_at_us, topic_names
from holdfast.pipeline.jobs import as_pauses, fill_pauses
from holdfast.pipeline.lag import INPUT, OWNERS, Ends, commits_input, lag_task
from holdfast.pipeline.pauses import narrow
from holdfast.pipeline.schemas import arrow_schema
from holdfast.pipeline.source import Dump
from holdfast.pipeline.state import STATE
from holdfast.pipeline.storage import FILES_SCHEMA, Batch, Tables, files_of, read_parquet
from holdfast.pipeline.tasks import UNKNOWN, commits_task, groups_task


def parts_of(dump, *, batch_rows=7):
    """(commits, others) as batches: others sorted by group and place in the log."""
    rows = pa.concat_tables([pq.read_table(f) for f in sorted((dump.path / "records").iterdir())])
    keys = rows["key"].to_pylist()
    commit = [k is not None and k[:2] in (b"\0\0", b"\0\1") for k in keys]
    others = [i for i, is_commit in enumerate(commit) if not is_commit]
    log = list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    others.sort(key=lambda i: (_group(keys[i]), *log[i]))
    commits = rows.filter(pa.array(commit, pa.bool_())).combine_chunks()
    ordered = rows.take(pa.array(others, pa.int64())).combine_chunks()
    return [table.to_batches(max_chunksize=batch_rows) for table in (commits, ordered)]


def _group(key):
    key = key or b""
    return key[4 : 4 + int.from_bytes(key[2:4], "big", signed=True)] if len(key) >= 4 else b""


def run(path, out_dir, *, batch_rows=7, reset="latest"):
    """Tables of a dump, and how many records had an unknown type."""
    dump, tables = Dump.open(path), Tables(out_dir.absolute())
    root, batch = str(tables.root), tables.next_batch()
    commits, others = parts_of(dump, batch_rows=batch_rows)
    names = [
        *commits_task(root, batch)(iter(commits)),
        *groups_task(root, batch, topic_names(dump))(iter(others)),
    ]
    found = pa.Table.from_batches(names) if names else None
    unknown = 0
    files = {}
    if found is not None:
        is_unknown = pc.equal(found["table"], UNKNOWN)
        unknown = pc.sum(found.filter(is_unknown)["rows"]).as_py() or 0
        files = files_of(found.filter(pc.invert(is_unknown)))
    ends = Ends(offsets=dump.offsets(), taken_at_us=taken_at_us(dump), reset=reset)
    owners = [read_parquet(tables.root / f) for f, _ in files.pop(OWNERS, [])]
    commits = [
        commits_input(read_parquet(tables.root / f)) for f, _ in files.get("offset_commits", [])
    ]
    rows = pa.concat_tables([INPUT.empty_table(), *owners, *commits]).sort_by("group")
    lag = list(lag_task(root, batch, ends)(iter(rows.to_batches(max_chunksize=batch_rows))))
    files |= files_of(pa.Table.from_batches(lag, FILES_SCHEMA))
    tables.commit(Batch(id=batch, files=files, notes={"n_unknown": unknown}), replace=True)
    return tables


def paused(tables):
    """``pauses`` and ``rebalances`` with bounds by commits, as the third job makes them."""
    plain = tables.table("pauses", flat=False)
    commits = tables.table("offset_commits")
    alive = commits.filter(pc.invert(commits["is_tombstone"]))
    found = narrow(pa.concat_tables([plain, as_pauses(alive, plain.schema)]))
    filled = fill_pauses(tables.table("rebalances"), [found])
    return found, filled.sort_by("generation")


def stream(path, out_dir, cuts, *, batch_rows=7):
    """Tables of a dump that came in batches, cut at these shares of the log; no Spark."""
    dump, tables = Dump.open(path), Tables(out_dir.absolute())
    root, names = str(tables.root), topic_names(dump)
    _, others = parts_of(dump, batch_rows=10**9)
    schema = arrow_schema("records")
    others = pa.Table.from_batches(others, schema)
    times = others["timestamp"].cast(pa.int64()).to_numpy()
    edges = [-(2**62), *sorted(cuts), 2**62]
    state = schema.empty_table()
    for batch, (low, high) in enumerate(pairwise(edges)):
        fresh = others.filter(pa.array((times >= low) & (times < high), pa.bool_()))
        rows = pa.concat_tables([state, fresh])
        log = list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
        keys = rows["key"].to_pylist()
        order = sorted(range(rows.num_rows), key=lambda i: (_group(keys[i]), *log[i]))
        ordered = rows.take(pa.array(order, pa.int64())).combine_chunks()
        task = groups_task(root, batch, names, keep_state=True)
        found = list(task(iter(ordered.to_batches(max_chunksize=batch_rows))))
        files = files_of(pa.Table.from_batches(found, FILES_SCHEMA))
        files.pop(OWNERS, None)
        files.pop(UNKNOWN, None)
        kept = [read_parquet(tables.root / f) for f, _ in files.pop(STATE, [])]
        state = pa.concat_tables([schema.empty_table(), *kept])
        tables.commit(Batch(id=batch, files=files))
    return tables
