"""Files of a folder that somebody else has written: refused in one sentence, whatever they are."""

from __future__ import annotations

import json
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fuzz.folders import KINDS, folder_of_tables, read_and_written
from tests.pipeline import fleet
from tests.suites import further
from tests.tables.test_commits import groups, written

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.folder import delta_log
from holdfast.fleet.tables.folder.delta_log import (
    LOG,
    checkpoint_name,
    entry_name,
    read_checkpoint,
    read_on,
)
from holdfast.fleet.tables.folder.manifest import MANIFEST, Batch, read_manifest, stamp
from holdfast.fleet.tables.folder.writing import BatchWriter, files_of
from holdfast.fleet.tables.reading import Tables, read_tables
from holdfast.fleet.tables.storage import parquet
from holdfast.fleet.tables.storage.parquet import BoundedParquet
from holdfast.fleet.tables.storage.places import store_of
from holdfast.fleet.tables.storage.store import MOST_BYTES


def made(kind, path, data):
    """Something in the place of a file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        other = path.with_name("elsewhere")
        other.write_bytes(data)
        path.symlink_to(other)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.write(data)
            file.truncate(len(data) + (1 << 20))


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "folder", "sparse"])
@pytest.mark.parametrize("which", ["manifest", "entry", "file", "dump.json", "records"])
def test_what_is_no_plain_file_is_refused_and_nobody_waits_for_it(tmp_path, kind, which):
    root = tmp_path / "tables"
    Tables(root).commit(written(root, 0, "a"))
    dump = fleet.write_dump(tmp_path / "dump", [("g", 1, fleet.commit("g", "t", 0, 1, at=1))])
    file = {
        "manifest": root / MANIFEST,
        "entry": root / entry_name("generations", 0),
        "file": Tables(root).files("generations")[0],
        "dump.json": dump / "dump.json",
        "records": next((dump / "records").iterdir()),
    }[which]
    if which == "manifest":
        (root / "_commits" / "000000001.json").unlink()
    made(kind, file, file.read_bytes())
    with pytest.raises(SourceError, match=r"a link|is a|has holes|it has no records") as told:
        Dump.open(dump) if which in ("dump.json", "records") else groups(root)
    assert "\n" not in str(told.value)


def test_a_page_that_asks_whether_tables_changed_waits_for_no_pipe(tmp_path):
    Tables(tmp_path).commit(written(tmp_path, 0, "a"))
    made("pipe", tmp_path / MANIFEST, b"")
    with pytest.raises(SourceError, match="is a pipe, expected a plain file"):
        stamp(tmp_path)


def test_a_manifest_of_more_bytes_or_batches_than_ours_is_not_parsed(tmp_path):
    Tables(tmp_path).commit(written(tmp_path, 0, "a"))
    file = tmp_path / MANIFEST
    document = json.loads(file.read_bytes())
    document["batches"] *= 21
    file.write_text(json.dumps(document))
    with pytest.raises(SourceError, match="21 batches, expected at most 20"):
        read_manifest(tmp_path)
    file.write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(SourceError, match=f"has {MOST_BYTES + 1} bytes, expected at most"):
        read_manifest(tmp_path)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"abc")
    fstat = os.fstat

    def growing(fd):
        status = fstat(fd)
        with (tmp_path / "file").open("ab") as file:
            file.write(b"more")
        return status

    monkeypatch.setattr(os, "fstat", growing)
    with pytest.raises(SourceError, match="changes while it is read: expected 7 bytes"):
        store_of(tmp_path).read("file")


def test_a_log_that_goes_on_without_a_checkpoint_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_log, "MOST_ENTRIES", 3)
    tables = Tables(tmp_path)
    for batch in range(5):
        tables.commit(written(tmp_path, batch, "a"))
    store = store_of(tmp_path)
    for version in (4, None):
        with pytest.raises(SourceError, match="more than 3 entries behind version -1"):
            read_on(store, "generations", delta_log.TableState(), version)
    assert read_on(store, "generations", delta_log.TableState(), 2).version == 2


@pytest.mark.parametrize("inside", [LOG, f"{LOG}/{0:020d}.json"])
def test_a_first_commit_looks_at_all_that_it_will_touch(tmp_path, inside):
    root, outside = tmp_path / "tables", tmp_path / "outside"
    outside.mkdir()
    draft = outside / f".{'a' * 32}.tmp"
    draft.touch()
    os.utime(draft, (1, 1))
    link = root / "lag" / inside
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    with pytest.raises(SourceError, match="is a link"):
        Tables(root).commit(written(root, 0, "a"))
    assert list(outside.iterdir()) == [draft]


def lag_of_one_name(n_rows, size):
    rows = {field.name: pa.nulls(n_rows, field.type) for field in arrow_schema("lag")}
    name = pa.array(["a" * size])
    rows["group"] = pa.DictionaryArray.from_arrays(pa.array([0] * n_rows, pa.int32()), name)
    return pa.table(rows)


def one_list(n):
    rows = {field.name: pa.nulls(1, field.type) for field in arrow_schema("assignments")}
    rows["partitions"] = pa.ListArray.from_arrays([0, n], pa.repeat(pa.scalar(1, pa.int32()), n))
    return pa.table(rows)


def nested_names(n):
    rows = {field.name: pa.nulls(1, field.type) for field in arrow_schema("anomalies")}
    names = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0), n), pa.array(["a" * 100_000]))
    rows["member_ids"] = pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), names)
    return pa.table(rows)


BOMBS = {
    "names": ("lag", lambda: lag_of_one_name(3_000, 300_000)),
    "nulls": ("lag", lambda: lag_of_one_name(2_000_000, 1)),
    "list": ("assignments", lambda: one_list(20_000_000)),
    "lists of names": ("anomalies", lambda: nested_names(3_000)),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_table_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, what):
    table, rows = BOMBS[what]
    schema, writer = arrow_schema(table), BatchWriter(str(tmp_path), 0)
    writer.write(table, pa.table([pa.nulls(1, one.type) for one in schema], schema=schema))
    Tables(tmp_path).commit(Batch(id=0, files=files_of(writer.close())))
    (file,) = Tables(tmp_path).files(table)
    options = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30, "store_schema": False}
    pq.write_table(rows(), file, **options)
    assert file.stat().st_size < 200_000
    before = pa.total_allocated_bytes()
    with pytest.raises(SourceError, match=r"has \d+ bytes and unpacks to \d+ or more"):
        read_tables(tmp_path)
    assert pa.total_allocated_bytes() - before < parquet.SMALL_BYTES


def test_values_made_of_earlier_ones_are_refused(tmp_path):
    """DELTA_BYTE_ARRAY: 2,000 values of 1 MB, of which each is the one before."""
    rows = pa.table({"group": ["a" * 1_000_000] * 200})
    file = tmp_path / "x.parquet"
    encoding = {"group": "DELTA_BYTE_ARRAY"}
    pq.write_table(rows, file, use_dictionary=False, column_encoding=encoding, compression="zstd")
    assert file.stat().st_size < 10_000
    with pytest.raises(SourceError, match="made of earlier ones"):
        BoundedParquet(file).read()


def test_a_footer_that_hides_its_pages_is_not_believed(tmp_path):
    """The pages of 3,000 rows under the footer of 3: what the headers say counts."""
    rows = lag_of_one_name(3_000, 300_000).select(["group"])
    file = tmp_path / "x.parquet"
    pq.write_table(rows, file, compression="zstd", dictionary_pagesize_limit=1 << 30)
    opened = BoundedParquet(file)
    assert opened.metadata.row_group(0).total_byte_size < 1_000_000
    found = opened._looked_at([0], None)
    assert found.most_bytes > 900_000_000
    with pytest.raises(SourceError, match="unpacks to"):
        opened.read()


@pytest.mark.parametrize("how", ["nulls", "dictionary"])
def test_a_checkpoint_is_read_within_the_same_bounds(tmp_path, how):
    n_rows = 200_000 if how == "nulls" else 20_000
    text = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0), n_rows), ["a" * 1_000_000])
    stats = pa.nulls(n_rows) if how == "nulls" else text
    add = pa.StructArray.from_arrays([pa.repeat("x", n_rows), stats], ["path", "stats"])
    file = tmp_path / checkpoint_name("lag", 1)
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"add": add}), file, compression="zstd", store_schema=False)
    assert file.stat().st_size < 200_000
    with pytest.raises(SourceError, match=r"expected at most 65536|unpacks to"):
        read_checkpoint(store_of(tmp_path), "lag", 1)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("group", None, "column group of generations has no value in 1 rows"),
        ("group", 5, "found int64, expected string|has no"),
        ("timestamp", 253_402_300_800_000_000, "a time outside of the years 1 to 9999"),
        ("timestamp", -(2**62), "a time outside of the years 1 to 9999"),
        ("group", "a" * 32_768, "a name of 32768 bytes, expected at most 32767"),
    ],
)
def test_what_a_column_cannot_hold_is_told_by_its_name(tmp_path, column, value, words):
    Tables(tmp_path).commit(written(tmp_path, 0, "a"))
    (file,) = Tables(tmp_path).files("generations")
    rows = Tables(tmp_path).stored("generations")
    at = rows.schema.get_field_index(column)
    kind = pa.int64() if isinstance(value, int) else rows.schema.field(at).type
    new = pa.array([value], kind)
    if column == "timestamp":
        new = new.cast(rows.schema.field(at).type)
    pq.write_table(rows.set_column(at, column, new), file)
    if value == 5:  # numbers are brought to texts
        assert read_tables(tmp_path).groups == ("5",)
        return
    with pytest.raises(SourceError, match=words):
        read_tables(tmp_path)


SPOILED = [
    b"Infinity", b"-1", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'"x"', b"1" * 5000,
    b"9223372036854775808", b'"\\ud800"',
]  # fmt: skip


def spoiled(data, rng):
    """One value, some bytes or the end of a file are others."""
    turn = rng.random()
    marks = [i for i, byte in enumerate(data) if byte in b":,[" and turn < 0.6]
    if marks and data[:1] == b"{":
        at = rng.choice(marks) + 1
        ends = [end for mark in (b",", b"}", b"]", b"\n") if (end := data.find(mark, at)) >= 0]
        return data[:at] + rng.choice(SPOILED) + data[min(ends, default=len(data)) :]
    if turn < 0.7:
        return data[: rng.randrange(len(data))]
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", further(range(3)))
def test_a_spoiled_file_is_told_in_one_sentence(kind, seed):
    """Whatever its bytes say, a folder is read and written to, or refused by an error of ours."""
    folder, rng = folder_of_tables(), random.Random(seed)
    good = folder.kept[folder.files(kind)[0]]
    n, least = (300, 100) if kind == "file" else (40, 7)
    done = [read_and_written(kind, spoiled(good, rng)) for _ in range(n)]
    assert done.count(False) > least
