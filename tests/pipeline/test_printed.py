"""What Kafka's tools print of the offsets topic, read back: as the topic had it, or an error.

The texts in ``printed`` are what the tools of several versions printed of a real
broker's topic, and ``records.jsonl`` is what that topic held.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.cli.running import run
from tests.pipeline import local
from tests.pipeline.kinds import printed as table_rows

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.pipeline.ingest.printed.described import read_described
from holdfast.fleet.pipeline.ingest.printed.dumps import PrintedKind, kind_of, write_printed

HERE = Path(__file__).parent / "printed"
JSON_LOGS = ["3.9.1", "4.3.1"]
OLD_LOGS = ["2.8.2", "3.6.2"]
VERSIONS = [*OLD_LOGS, *JSON_LOGS]
DESCRIBED = ["2.8.2", "3.6.2", "4.3.1"]
ODD = "a, b::c payload: {d=[e-0]}"
TABLES = ("generations", "members", "assignments", "movements", "rebalances", "offset_commits")


def truth(version):
    """{(partition, offset): (time in ms, key, value)} of the topic that was printed."""
    lines = (HERE / version / "records.jsonl").read_text("utf-8").splitlines()
    rows = map(json.loads, lines)
    return {
        (row["partition"], row["offset"]): (
            row["timestamp_ms"],
            bytes.fromhex(row["key"]),
            row["value"] and bytes.fromhex(row["value"]),
        )
        for row in rows
    }


def read(path, folder):
    """The records of a text as ``truth`` has them, its dump, and what was said."""
    said = []
    dump = write_printed(path, folder, said.append)
    rows = [row for batch in dump.rows().here() for row in batch.to_pylist()]
    found = {
        (row["partition"], row["offset"]): (
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found, dump, said


def texts(version, name):
    return HERE / version / f"{name}.txt"


def shown(record):
    """What the tools before Kafka's JSON print of a record."""
    _, key, value = record
    found = decode_record(key, value)
    if found.value is None:
        return found.name, found.key, None
    if found.name == "OffsetCommit":
        return found.name, found.key, (found.value["offset"], found.value["metadata"])
    own = {
        m["memberId"]: sorted(decode_assignment(m["assignment"]).partitions)
        for m in found.value["members"]
    }
    head = tuple(found.value[name] for name in ("protocolType", "generation", "protocol"))
    return found.name, found.key, (head, own)


@pytest.mark.parametrize("version", JSON_LOGS)
def test_a_printed_log_is_the_topic_byte_for_byte(version, tmp_path):
    found, dump, said = read(texts(version, "dump-log"), tmp_path)
    wanted = truth(version)
    assert {place: found[place] for place in wanted} == wanted  # the text was printed a bit later
    (waiting,) = dump.open_transactions
    assert (waiting.groups, waiting.n_records) == (("waiting",), 1)
    assert said == ["log ends are not printed, so lags are not known"]


@pytest.mark.parametrize("version", OLD_LOGS)
def test_an_old_printed_log_has_what_the_text_says(version, tmp_path):
    found, dump, said = read(texts(version, "dump-log"), tmp_path)
    wanted = truth(version)
    assert found.keys() >= wanted.keys()
    for place, record in wanted.items():
        assert found[place][0] == record[0]
        assert shown(found[place]) == shown(record), place
    assert {one.groups for one in dump.open_transactions} == {("waiting",)}
    assert len(said) == 1 and "no leaders, clients, subscriptions" in said[0]


def made_of(version, names):
    """Bytes of the records of the topic that a formatter prints."""
    return Counter(
        (key, value)
        for _, key, value in truth(version).values()
        if decode_record(key, value).name in names
    )


@pytest.mark.parametrize(
    ("name", "records"), [("offsets", "OffsetCommit"), ("groups", "GroupMetadata")]
)
def test_printed_json_of_the_console_has_the_same_bytes(name, records, tmp_path):
    found, dump, said = read(texts("4.3.1", name), tmp_path)
    wanted = made_of("4.3.1", {records})
    here = Counter((key, value) for _, key, value in found.values())
    assert not wanted - here
    more = [decode_record(*pair) for pair in (here - wanted).elements()]
    if name == "offsets":  # of the aborted and of the open transaction
        assert sorted(one.value["offset"] for one in more) == [5, 777]
        times = [(t, decode_record(k, v).value) for t, k, v in found.values() if v is not None]
        assert all(time == value["commitTimestamp"] for time, value in times)
    assert "aborted or open transactions" in said[0]
    assert dump.offsets().to_pylist()[0]["end_offset"] == len(found)


@pytest.mark.parametrize("version", ["2.8.2", "3.6.2", "3.9.1"])
def test_old_text_of_the_console_has_every_commit(version, tmp_path):
    found, _, said = read(texts(version, "offsets"), tmp_path)

    def fields(records):
        kept = (decode_record(key, value) for _, key, value in records)
        return Counter(repr((one.key, one.value)) for one in kept if one.name == "OffsetCommit")

    more = fields(found.values()) - fields(truth(version).values())
    assert not fields(truth(version).values()) - fields(found.values())
    assert {int(re.search(r"'offset': (\d+)", one)[1]) for one in more} == {5, 777}
    assert "aborted or open transactions" in said[0]


def test_old_text_of_groups_makes_no_history(tmp_path):
    path = texts("2.8.2", "groups")
    with pytest.raises(SourceError, match="neither times nor what members were given"):
        read(path, tmp_path / "dump")
    both = tmp_path / "both.txt"
    both.write_text(texts("2.8.2", "offsets").read_text("utf-8") + path.read_text("utf-8"), "utf-8")
    found, _, said = read(both, tmp_path / "dump")
    assert len(found) == 16
    assert "17 records of groups are left out" in said[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tables_are_those_of_the_topic(version, tmp_path):
    """Every table of a printed log is that of the same topic's dump, as far as the text has it."""
    _, dump, _ = read(texts(version, "dump-log"), tmp_path / "printed")
    wanted = truth(version)
    columns = {
        "partition": [partition for partition, _ in wanted],
        "offset": [offset for _, offset in wanted],
        "timestamp": [time_ms * 1000 for time_ms, _, _ in wanted.values()],
        "key": [key for _, key, _ in wanted.values()],
        "value": [value for _, _, value in wanted.values()],
    }
    topics = [tuple(row.values()) for row in dump.topics().to_pylist()]
    taken_at = dump.taken_at
    snapshot = ClusterSnapshot(cluster_id="", topics=topics, offsets=[], taken_at=taken_at)
    write_log(tmp_path / "dump", columns, snapshot)
    ends = json.loads((HERE / version / "about.json").read_text("utf-8"))["ends"]
    ours, theirs = (
        local.run(tmp_path / name, tmp_path / f"{name}-tables") for name in ("printed", "dump")
    )
    lacking = {
        "client_id",
        "client_host",
        "subscribed_topics",
        "n_claimed",
        "leader",
        "group_instance_id",
    }
    lacking |= {"session_timeout_ms", "rebalance_timeout_ms", "record_bytes", "rack"}
    lacking |= {"commit_timestamp", "leader_epoch", "value_version"}
    if version in JSON_LOGS:
        lacking = set()
    for name in (
        TABLES
        if version in JSON_LOGS
        else ("generations", "members", "assignments", "offset_commits")
    ):
        kept = [c for c in theirs.table(name).column_names if c not in lacking]

        def rows(tables, name=name, kept=kept):
            # What was written between the two was printed, and is in no dump.
            return sorted(
                repr([row[c] for c in kept])
                for row in tables.table(name).to_pylist()
                if row.get("log_offset", 0) < ends[str(row.get("log_partition", 0))][1]
            )

        assert set(rows(theirs)) <= set(rows(ours)), name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_text_that_was_cut_is_an_error_that_names_its_line(version, tmp_path):
    """Wherever a printed log ends, it is read as far as whole batches go, or the line is named."""
    text = texts(version, "dump-log").read_text("utf-8")
    whole, *_ = read(texts(version, "dump-log"), tmp_path / "whole")
    cut, n_errors = tmp_path / "cut.txt", 0
    for end in range(150, len(text) - 1, 577):
        cut.write_text(text[:end], "utf-8", newline="")
        try:
            found, *_ = read(cut, tmp_path / "dump")
        except SourceError as error:
            line = re.search(r"cut\.txt, line (\d+): ", str(error))
            assert line is not None, error
            assert int(line[1]) <= text[:end].count("\n") + 1
            n_errors += 1
        else:
            assert found.items() <= whole.items()
    assert n_errors > 10


@pytest.mark.parametrize("name", ["offsets", "groups"])
def test_cut_text_of_the_console_is_an_error(name, tmp_path):
    cut = tmp_path / "cut.txt"
    for version in ("2.8.2", "4.3.1"):
        text = texts(version, name).read_text("utf-8")
        end = text.rindex("commitTimestamp" if name == "offsets" else "members")
        cut.write_text(text[:end], "utf-8", newline="")
        with pytest.raises(SourceError, match=r"cut\.txt, line \d+: .*cut short"):
            read(cut, tmp_path / "dump")


def changed(tmp_path, version, name, old, new):
    text = texts(version, name).read_text("utf-8")
    assert old in text
    path = tmp_path / "changed.txt"
    path.write_text(text.replace(old, new, 1), "utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"offset":42', '"offset":"x"', "not a whole number"),
        ('"metadataHash":', '"metadataHush":', "metadataHush"),
        ('{"version":"3"', '{"version":"9"', "9"),
        ("| offset: 1 ", "| offset: one ", "neither a batch nor a record|record is expected"),
        ("key: {", "kex: {", "no key"),
        ("payload: {", "payload: {{", "Expecting|line"),
        ("count: 5", "count: 6", "lacks 1 of its records"),
        ("count: 5", "count: 4", "outside its batch"),
        ("baseOffset: 8 lastOffset", "baseOffset: x lastOffset", "neither a batch nor a record"),
    ],
)
def test_a_malformed_line_is_named(old, new, why, tmp_path):
    path = changed(tmp_path, "4.3.1", "dump-log", old, new)
    with pytest.raises(SourceError, match=rf"changed\.txt, line \d+: .*(?:{why})"):
        read(path, tmp_path / "dump")


def test_a_type_that_the_tool_did_not_know_is_reported(tmp_path):
    path = changed(
        tmp_path, "4.3.1", "dump-log", 'key: {"type":"16","data":{', 'key: {"type":"99","data":{'
    )
    _, _, said = read(path, tmp_path / "dump")
    assert "1 records are of types that the tool did not know" in said[0]


def test_a_segment_that_was_printed_twice_counts_once(tmp_path):
    text = texts("4.3.1", "dump-log").read_text("utf-8")
    twice = tmp_path / "twice.txt.gz"
    twice.write_bytes(gzip.compress(f"{text}{text}".encode()))
    assert read(twice, tmp_path / "a")[0] == read(texts("4.3.1", "dump-log"), tmp_path / "b")[0]


# Groups at one moment


@pytest.mark.parametrize("version", DESCRIBED)
def test_described_groups_are_what_the_table_says(version):
    text = texts(version, "describe-all").read_text("utf-8")
    found = read_described("x", text.splitlines(keepends=True))
    assert ODD in found.groups and "reading" in found.groups
    wanted = {
        (row["GROUP"], row["TOPIC"], int(row["PARTITION"])): (
            row["CURRENT-OFFSET"],
            row["LOG-END-OFFSET"],
        )
        for row in table_rows(text)
        if row["GROUP"] in {"classic", "reading", "simple", "transactional"}
    }
    dashed = {None: "-"}
    here = {
        (one.group, one.topic, one.partition): tuple(
            dashed.get(n, str(n)) for n in (one.committed, one.end)
        )
        for one in found.partitions
    }
    assert wanted.items() <= here.items()
    assert here[ODD, "clicks", 0] == ("4", "0")
    readers = {one.client_id: one.partitions for one in found.readers("reading")}
    assert readers == {"the reader 1": (("orders", (0, 1)),), "the reader 2": (("orders", (2,)),)}
    members = read_described(
        "x", texts(version, "describe-members-all").read_text("utf-8").splitlines()
    )
    assert {one.client_id: one.partitions for one in members.readers("reading")} == readers


def test_a_cell_that_is_too_long_pushes_what_follows():
    names = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    widths = (15, 15, 10, 15, 15, 15, 15, 15, 0)
    offsets = (1234567890123456789, 1234567890123456799)
    cells = ("g", "t", 0, *offsets, 10, "m-1", "/255.255.255.255", "me too")
    lines = [
        " ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in (names.split(), cells)
    ]
    found = read_described("x", lines)
    (row,) = found.partitions
    assert (row.committed, row.end) == offsets
    (member,) = found.readers("g")
    assert (member.client_host, member.client_id) == ("/255.255.255.255", "me too")


@pytest.mark.parametrize("name", ["describe-all", "describe-members-all"])
def test_a_described_text_that_was_cut_is_an_error(name):
    text = texts("4.3.1", name).read_text("utf-8")
    end = text.rindex("reading") + 60
    with pytest.raises(SourceError, match=r"x, line \d+: .*cut short"):
        read_described("x", text[:end].splitlines())


def test_what_the_tool_said_instead_of_a_table_is_in_the_error():
    with pytest.raises(
        SourceError, match=r"no table of offsets.*Consumer group 'x' does not exist"
    ):
        read_described("x", ["", "Error: Consumer group 'x' does not exist."])


# Commands


def rows_of(*words):
    done = run(*words, "--format", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)["rows"], done.err


def test_lag_of_described_groups():
    rows, said = rows_of("lag", "--input", texts("4.3.1", "describe-all"))
    own = {(r["group"], r["topic"], r["partition"]): r for r in rows}
    assert own["reading", "orders", 0]["lag"] == 6
    assert own["reading", "orders", 0]["client_id"] == "the reader 1"
    assert own["reading", "orders", 1]["lag"] is None
    assert own["simple", "clicks", 1]["clamped"] == "beyond_end"
    assert all(row["log_start_offset"] is None and row["lag_seconds"] in (None, 0) for row in rows)
    assert "neither the begin of logs" in said
    (one,), _ = rows_of(
        "lag", "--input", texts("4.3.1", "describe-all"), "--total", "--group", "kip-848"
    )
    assert (one["group"], one["lag"]) == ("kip-848", 7)
    done = run("lag", "--input", texts("4.3.1", "describe-members-all"))
    assert done.code == 3 and "without --members" in done.err


def test_plan_and_assign_of_described_groups():
    rows, _ = rows_of("plan", "--assignor", "sticky", "--input", texts("4.3.1", "describe-all"))
    assert {row["group"]: row["n_members"] for row in rows} == {
        "classic": 1,
        "kip-848": 1,
        "reading": 2,
    }
    done = run("assign", texts("4.3.1", "describe-all"), "--group", "reading", "--format", "json")
    assert done.code == 0, done.err
    quality = json.loads(done.out)["quality"]
    assert (quality["kept"], quality["moved"]) == (3, 0)
    assert sorted(quality["lags"].values()) == [0, 6]
    several = run("assign", texts("4.3.1", "describe-all"))
    assert several.code == 2 and "--group names one" in several.err
    nobody = run("assign", texts("4.3.1", "describe-all"), "--group", "simple")
    assert nobody.code == 3 and "has members" in nobody.err


def test_history_and_doctor_of_a_printed_log(tmp_path):
    rows, said = rows_of("history", "--input", texts("4.3.1", "dump-log"), "--group", "reading")
    assert [row["generation"] for row in rows] == [0, 1, 2, 3]
    assert "log ends are not printed" in said
    found = run("doctor", "--input", texts("2.8.2", "dump-log"), "--format", "json")
    assert found.code == 0, found.err
    assert "no leaders, clients" in found.err
    lags, _ = rows_of("lag", "--input", texts("3.6.2", "dump-log"), "--group", "simple")
    assert [(r["current_offset"], r["lag"], r["status"]) for r in lags] == [(42, None, "committed")]


def test_a_file_that_is_no_such_text_is_refused(tmp_path):
    for name, text in {"a.txt": "hello\n", "b.json": "{}", "c.txt": ""}.items():
        (tmp_path / name).write_text(text)
        done = run("history", "--input", tmp_path / name)
        assert done.code == 3 and "not output of kafka-dump-log" in done.err, done.err
    moment = run("history", "--input", texts("4.3.1", "describe-all"))
    assert moment.code == 2 and "about one moment" in moment.err


def test_each_tool_is_known_by_its_first_lines():
    for version in VERSIONS:
        assert kind_of(texts(version, "dump-log")) is PrintedKind.LOG
    for version in DESCRIBED:
        assert kind_of(texts(version, "describe-all")) is PrintedKind.DESCRIBED
    assert kind_of(texts("4.3.1", "offsets")) is PrintedKind.CONSOLE
    assert kind_of(texts("2.8.2", "groups")) is PrintedKind.OLD_CONSOLE
