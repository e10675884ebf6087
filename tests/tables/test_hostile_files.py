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
from holdfast.fleet.tables.folder import delta_log
from holdfast.fleet.tables.folder.delta_log import (
    LOG,
    entry_name,
    read_on,
)
from holdfast.fleet.tables.folder.manifest import MANIFEST, read_manifest, stamp
from holdfast.fleet.tables.reading import Tables, read_tables
from holdfast.fleet.tables.storage.file_system import MOST_BYTES
from holdfast.fleet.tables.storage.paths import file_system_of


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
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "folder"])
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
    with pytest.raises(SourceError, match=r"a link|is a|it has no records") as told:
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


def test_a_log_that_goes_on_without_a_checkpoint_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_log, "MOST_ENTRIES", 3)
    tables = Tables(tmp_path)
    for batch in range(5):
        tables.commit(written(tmp_path, batch, "a"))
    store = file_system_of(tmp_path)
    for version in (4, None):
        with pytest.raises(SourceError, match="more than 3 entries behind version -1"):
            read_on(store, "generations", delta_log.TableSnapshot(), version)
    assert read_on(store, "generations", delta_log.TableSnapshot(), 2).version == 2


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
def test_what_a_column_cannot_hold_is_reported_by_its_name(tmp_path, column, value, words):
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
def test_a_spoiled_file_is_reported_in_one_sentence(kind, seed):
    """Whatever its bytes say, a folder is read and written to, or refused by an error of ours."""
    folder, rng = folder_of_tables(), random.Random(seed)
    good = folder.kept[folder.files(kind)[0]]
    n, least = (300, 100) if kind == "file" else (40, 7)
    done = [read_and_written(kind, spoiled(good, rng)) for _ in range(n)]
    assert done.count(False) > least
