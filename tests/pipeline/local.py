"""The jobs of the pipeline without Spark: the same tasks over the same records, in this process."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.pipeline.history import fill_pauses, topic_names
from holdfast.pipeline.pauses import narrow
from holdfast.pipeline.source import Dump
from holdfast.pipeline.storage import Batch, Tables, files_of
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


def run(path, out_dir, *, batch_rows=7):
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
    tables.commit(Batch(id=batch, files=files, notes={"n_unknown": unknown}), replace=True)
    return tables


def paused(tables):
    """``pauses`` and ``rebalances`` with bounds by commits, as the third job makes them."""
    commits = tables.table("offset_commits").to_pylist()
    rows = [
        {k: r[k] for k in ("group", "topic")}
        | {"partitions": [r["partition"]], "timestamp": r["commit_timestamp"], "basis": "commit"}
        for r in commits
        if not r["is_tombstone"]
    ]
    plain = tables.table("pauses", flat=False)
    found = narrow(pa.concat_tables([plain, pa.Table.from_pylist(rows, plain.schema)]))
    filled = fill_pauses(tables.table("rebalances"), [found])
    return found, filled.sort_by("generation")
