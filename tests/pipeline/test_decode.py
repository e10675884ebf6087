"""Records in Arrow to tables in Arrow, against the scalar decoders row by row."""

from __future__ import annotations

import fnmatch
from datetime import UTC, datetime
from operator import itemgetter
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.fleet import generation_value, member, record_batch
from tests.pipeline.histories import generation
from tests.wire.records_twin import records

from holdfast.core.kinds import BY_RECORD
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.record_size import batch_bytes
from holdfast.core.wire.one.topic_ids import topic_id_text
from holdfast.errors import WireError
from holdfast.fleet.pipeline.history.consumer_groups import group_events
from holdfast.fleet.pipeline.ingest import decode, decode_classic, split
from holdfast.fleet.pipeline.ingest.decode import Selection, binary_column, group_names
from holdfast.fleet.pipeline.ingest.generations import (
    Generations,
    concat,
    generation_tables,
)
from holdfast.fleet.pipeline.ingest.split import is_commit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch_of(pairs) -> pa.RecordBatch:
    return record_batch([(7, 100 + i, 1_000_000, *pair) for i, pair in enumerate(pairs)])


def rows_of(batches) -> list[dict]:
    out = []
    for batch in batches:
        batch.validate(full=True)
        out += batch.to_pylist()
    return sorted(out, key=lambda row: row["log_offset"])


def nested(batch) -> list[dict]:
    """Rows of generations, each with its members, and they with what they own."""
    out = []
    for gens in decode_classic.generations(batch):
        for table in (gens.head, gens.members, gens.owned):
            table.validate(full=True)
        members = [row | {"owned": []} for row in gens.members.to_pylist()]
        for one in gens.owned.to_pylist():
            assert one.pop("role") is None  # the one owner
            members[one.pop("member")]["owned"].append(one)
        head = [row | {"members": []} for row in gens.head.to_pylist()]
        for one in members:
            head[one.pop("row")]["members"].append(one)
        out += head
    return sorted(out, key=lambda row: row["log_offset"])


def group_record(members, *, protocol_type="consumer", group="g") -> Record:
    return Record(
        record_type=2,
        name="GroupMetadata",
        key={"group": group},
        value_version=3,
        value=generation_value(5, members, protocolType=protocol_type),
    )


@given(st.lists(records((0, 1)), max_size=8))
def test_offset_commits_say_what_the_scalar_form_says(some):
    batch = batch_of([encode_record(r) for r in some])
    rows = rows_of(split.offset_commits(batch))
    good = [i for i, record in enumerate(some) if record.key["partition"] >= 0]
    bad = [row["log_offset"] for row in rows_of(decode.unread(batch)[0])]
    assert sorted(bad) == [100 + i for i in range(len(some)) if i not in good]
    for index, row in zip(good, rows, strict=True):
        record = some[index]
        value = record.value or {}
        assert (row["log_partition"], row["log_offset"]) == (7, 100 + index)
        assert row["timestamp"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert {k: row[k] for k in ("group", "topic", "partition")} == record.key
        assert row["is_tombstone"] is (record.value is None)
        assert row["value_version"] == record.value_version
        assert row["offset"] == value.get("offset")
        assert row["metadata"] == value.get("metadata")
        epoch = value.get("leaderEpoch", -1)
        assert row["leader_epoch"] == (None if epoch < 0 else epoch)
        topic_id = value.get("topicId")
        assert row["topic_id"] == (topic_id_text(topic_id) if topic_id and topic_id.int else None)
        for column, field in (
            ("commit_timestamp", "commitTimestamp"),
            ("expire_timestamp", "expireTimestamp"),
        ):
            millis = value.get(field, -1)
            there = 0 <= millis <= 253_402_300_799_999
            assert (row[column] is not None) is there
            if there:
                assert (row[column] - EPOCH).total_seconds() * 1000 == pytest.approx(millis)


topic_partitions = st.lists(
    st.tuples(
        st.sampled_from(["orders", "clicks", "é"]),
        st.lists(st.integers(-1, 9), max_size=4).map(tuple),
    ),
    max_size=3,
).map(tuple)
subscriptions = st.builds(
    Subscription,
    version=st.integers(0, 3),
    topics=st.lists(st.sampled_from(["a", "b", "c"]), max_size=3).map(tuple),
    user_data=st.none() | st.binary(max_size=5),
    owned=topic_partitions,
    generation=st.integers(-1, 9),
    rack=st.none() | st.just("r1"),
).map(encode_subscription)
given_out = st.builds(
    AssignmentMessage, version=st.integers(0, 3), partitions=topic_partitions, user_data=st.none()
).map(encode_assignment)


@st.composite
def blobs(draw, good):
    blob = draw(good)
    match draw(st.integers(0, 5)):
        case 0:
            return blob[: draw(st.integers(0, len(blob)))]
        case 1:
            at = draw(st.integers(0, len(blob) - 1))
            return blob[:at] + bytes([draw(st.integers(0, 255))]) + blob[at + 1 :]
        case 2:
            return blob + b"\x01more"
        case _:
            return blob


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["consumer", "consumer", "sr", ""]),
            st.lists(st.tuples(blobs(subscriptions), blobs(given_out)), max_size=4),
        ),
        max_size=4,
    )
)
def test_group_records_say_what_the_scalar_forms_say(groups):
    some = [
        group_record([member(f"m{i}", *pair) for i, pair in enumerate(pairs)], protocol_type=kind)
        for kind, pairs in groups
    ]
    batch = batch_of([encode_record(record) for record in some])
    rows = nested(batch)
    found = concat([Generations.empty(), *decode_classic.generations(batch)])
    tables = {name: table.to_pylist() for name, table in generation_tables(found).items()}
    flat, members = [], iter(tables["members"])
    for row, counted, record in zip(rows, tables["generations"], some, strict=True):
        value = record.value
        consumer = value["protocolType"] == "consumer"
        assert row["state"] == ("Stable" if value["members"] else "Empty")
        assert counted["n_members"] == len(value["members"]) == len(row["members"])
        n_partitions = 0
        for one, wanted in zip(row["members"], value["members"], strict=True):
            assert one["member_id"] == wanted["memberId"]
            check_subscription(one, wanted["subscription"] if consumer else b"")
            one["n_partitions"] = next(members)["n_partitions"]
            check_assignment(one, wanted["assignment"] if consumer else b"")
            n_partitions += one["n_partitions"]
            flat += [(one["member_id"], o) for o in one["owned"] if o["partitions"]]
        assert counted["n_partitions"] == n_partitions
    assert [
        (r["member_id"], {"topic": r["topic"], "partitions": r["partitions"], "reader": None})
        for r in tables["assignments"]
    ] == flat


def check_subscription(found, blob):
    try:
        wanted = decode_subscription(blob) if blob else None
    except WireError:
        wanted = None
    if wanted is None:
        assert found["subscribed_topics"] is found["rack"] is found["n_claimed"] is None
        return
    assert found["subscribed_topics"] == list(wanted.topics)
    assert found["rack"] == wanted.rack
    assert found["n_claimed"] == sum(len(ps) for _, ps in wanted.owned)


def check_assignment(found, blob):
    wanted = ()
    readable = True
    try:
        wanted = decode_assignment(blob).partitions if blob else ()
    except WireError:
        readable = False
    if any(partition < 0 for _, ps in wanted for partition in ps):
        wanted, readable = (), False
    assert found["readable"] is readable
    owned = [{"topic": t, "partitions": sorted(ps), "reader": None} for t, ps in wanted]
    assert found["owned"] == owned
    assert found["n_partitions"] == sum(len(ps) for _, ps in wanted)


def test_group_tombstone_is_a_dead_group():
    key, value = encode_record(group_record([member("m0")]))
    rows = nested(batch_of([(key, None), (key, value)]))
    assert [row["state"] for row in rows] == ["Dead", "Stable"]
    assert (rows[0]["generation"], rows[0]["members"], rows[0]["leader"]) == (-1, [], None)


def test_a_generation_says_how_large_its_record_is():
    sizes = [0, 60, 8_100, 1_050_000]
    some = [encode_record(group_record([member("m", b"s" * size)])) for size in sizes]
    batch = batch_of([*some, (some[0][0], None)])
    found = concat([Generations.empty(), *decode_classic.generations(batch)])
    heads = sorted(found.head.to_pylist(), key=lambda row: row["log_offset"])
    expected = [batch_bytes(len(key), len(value)) for key, value in some]
    assert [row["record_bytes"] for row in heads] == [*expected, None]  # a tombstone has none
    stored = generation_tables(found)["generations"].to_pylist()
    assert {row["record_bytes"] for row in stored} == {*expected, None}


def test_generations_number_their_rows():
    told = encode_assignment(AssignmentMessage(version=1, partitions=(("t", (1,)), ("u", (0, 2)))))
    some = [
        group_record([]),
        group_record([member("a"), member("b", assignment=told)]),
        group_record([member("c", assignment=told)]),
    ]
    (gens,) = decode_classic.generations(batch_of([encode_record(record) for record in some]))
    for part in (gens, gens.take([1, 2])):
        shift = 3 - part.n_rows
        assert part.members.column("row").to_pylist() == [1 - shift, 1 - shift, 2 - shift]
        assert part.members.column("member_id").to_pylist() == ["a", "b", "c"]
        assert part.owned.column("member").to_pylist() == [1, 1, 2, 2]
        assert part.owned.column("partitions").to_pylist() == [[1], [0, 2], [1], [0, 2]]


def plain(value):
    """As :meth:`Record.to_dict`, without what a member says by the classic protocol."""
    match value:
        case dict():
            named = value.items()
            return {name: plain(inner) for name, inner in named if name != "classicMemberMetadata"}
        case tuple():
            return [plain(inner) for inner in value]
        case UUID():
            return topic_id_text(value)
        case int() | str() | None:
            return value
        case _:
            return str(value)


COUNTED = {"partition", "partitions", "generation", "epoch", "assignmentEpoch"}


def below_zero(value, name=""):
    """Whether a partition or an epoch in a record is below 0."""
    match value:
        case dict():
            return any(below_zero(inner, key) for key, inner in value.items())
        case tuple():
            return any(below_zero(inner, name) for inner in value)
        case int():
            return name in COUNTED and value < 0
    return False


@pytest.mark.parametrize("number", BY_RECORD)
@settings(max_examples=12)
@given(data=st.data())
def test_events_say_what_the_scalar_form_says(number, data):
    drawn = data.draw(st.lists(records((number,)), max_size=6))
    batch = batch_of([encode_record(r) for r in drawn])
    events = sorted(group_events(batch, number), key=itemgetter("log_offset"))
    strange = [below_zero(r.key) or below_zero(r.value) for r in drawn]
    bad = sorted(row["log_offset"] for row in rows_of(decode.unread(batch)[0]))
    assert bad == [100 + i for i, is_it in enumerate(strange) if is_it]
    some = [r for r, is_it in zip(drawn, strange, strict=True) if not is_it]
    keys = [(record.key["groupId"], record.key.get("memberId", "")) for record in some]
    assert [(event["group"], event["member_id"]) for event in events] == keys
    assert [event["value"] for event in events] == [plain(record.value) for record in some]


def test_bad_records_come_whole():
    pairs = [(b"\x00\x01", b""), (None, b"\x00"), (b"\x00", None), (b"\x00\x09", b"")]
    pairs.append((b"\x00\x02\x00\x01g", b"\x00\x05"))
    rows = rows_of(decode.unread(batch_of(pairs))[0])
    assert [(r["log_offset"], r["record_type"], r["reason"], r["position"]) for r in rows] == [
        (100, 1, "truncated", 2),
        (101, None, "unexpected-null", 0),
        (102, None, "truncated", 0),
        (104, 2, "bad-version", 0),
    ]
    assert [(r["key_hex"], r["value_hex"]) for r in rows] == [
        ("0001", ""),
        (None, "00"),
        ("00", None),
        ("0002000167", "0005"),
    ]
    assert decode.unread(batch_of([])) == ([], {})


def test_records_of_unknown_types_are_counted():
    commit = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
    pairs = [(commit, None), (b"\x00\x09", b""), (b"\x7f\xff", None), (b"\x00\x09", None)]
    assert decode.unread(batch_of(pairs)) == ([], {9: 2, 0x7FFF: 1})


@pytest.mark.parametrize("dtype", [pa.large_binary(), pa.binary_view()])
def test_other_binary_types_and_slices(dtype):
    pairs = [encode_record(group_record([member("a")], group=f"g{i}")) for i in range(6)]
    whole = batch_of(pairs)
    at = whole.schema.get_field_index("key")
    other = whole.set_column(at, "key", whole.column("key").cast(dtype))
    assert nested(other.slice(2, 3)) == nested(whole)[2:5]
    assert list(decode_classic.generations(whole.slice(0, 0))) == []


def test_columns_of_the_log_are_optional():
    batch = batch_of([encode_record(group_record([]))]).select(["key", "value"])
    (row,) = nested(batch)
    assert row["log_partition"] is row["log_offset"] is row["timestamp"] is None


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
