"""Which groups are looked at: by the bytes of keys alone. No Spark."""

from __future__ import annotations

import fnmatch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation

from holdfast.fleet.pipeline.ingest.decode import Selection, binary_column, group_names
from holdfast.fleet.pipeline.ingest.split import is_commit


@pytest.mark.parametrize(
    ("groups", "partitions"),
    [
        ([], None),
        (["e*"], None),
        (["a", "b*"], None),
        (["a"], {97 % 50}),
        (["a", "polygenelubricants"], {97 % 50, 0}),
    ],
)
def test_only_names_say_in_which_partitions_their_groups_are(groups, partitions):
    assert Selection(groups=groups).log_partitions(50) == partitions


SPARKS = ["spark-kafka-sauce", "spark-kafka-source-1-driver-0"]
NAMES = ["etl-1", "etl-2", "web", *SPARKS, "e*", "a[1]", ""]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["", "a[1]", "e*", "etl-1", "etl-2", "spark-kafka-sauce", "web"]),
        ({"all_groups": True}, sorted(NAMES)),
        ({"groups": ["web"]}, ["web"]),
        ({"groups": ["etl-?", "web"]}, ["etl-1", "etl-2", "web"]),
        ({"groups": ["e[*]"]}, ["e*"]),
        ({"groups": ["spark-kafka-s*"]}, ["spark-kafka-sauce", "spark-kafka-source-1-driver-0"]),
        ({"groups": [""]}, [""]),
        ({"groups": ["a[1]"]}, ["a[1]"]),
        ({"groups": ["nobody"]}, []),
    ],
    ids=repr,
)
def test_groups_can_be_chosen(tmp_path, options, expected):
    records = []
    for name in NAMES:
        records.append((name, 1, fleet.classic(generation(name, 1, {"m": {"t": [0]}}))))
        records.append((name, 2, fleet.commit(name, "t", 0, 1, at=2)))
    dump = fleet.write_dump(tmp_path / "dump", records)
    tables = local.run(dump, tmp_path / "out", selection=Selection(**options))
    for table in ("generations", "offset_commits", "lag"):
        assert sorted({r["group"] for r in tables.table(table).to_pylist()}) == expected


keys = (
    st.none()
    | st.binary(max_size=40)
    | st.text(max_size=9).map(
        lambda name: b"\0\1" + len(name.encode()).to_bytes(2, "big") + name.encode() + b"rest"
    )
)


@given(st.lists(keys, max_size=9), st.integers(0, 3))
def test_names_and_types_of_any_bytes(found, skip):
    column = pa.array(found, pa.binary()).slice(min(skip, len(found)))
    found = found[skip:]
    wanted = [
        b"" if k is None or len(k) < 4 else k[4:][: int.from_bytes(k[2:4], "big")] for k in found
    ]
    assert group_names(binary_column(column)).to_pylist() == wanted
    types = [k is not None and k[:2] in (b"\0\0", b"\0\1") for k in found]
    assert is_commit(column).tolist() == types
    pattern = Selection(groups=["a*", "b"])
    kept = pattern.keep(column)
    said = [n.decode("utf-8", "replace") for n in wanted]
    assert list(kept) == [fnmatch.fnmatchcase(n, "a*") or n == "b" for n in said]
