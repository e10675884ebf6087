"""``holdfast simulate --dump``: the log of a simulated coordinator is a dump like any other."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from tests.cli.running import run

from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, decode_subscription
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.fleet.pipeline.ingest.source import Dump


@pytest.mark.parametrize("policy", ["eager", "cooperative-sticky", "deferred", "incremental"])
def test_the_scalar_decoder_reads_every_record(policy, tmp_path):
    folder = tmp_path / "run"
    done = run(
        "simulate", "--scenario", "scale-down", "--policy", policy, "--members", "3",
        "--partitions", "6", "--dump", folder, "--format", "json",
    )  # fmt: skip
    assert done.code == 0, done.err
    dump = Dump.open(folder)
    rows = pq.read_table(folder / "records").to_pylist()
    assert f"{len(rows)} records in {folder}" in done.err.replace("\n", "")
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)
    assert times[0].year == 2026
    generations, committed = [], {}
    for row in rows:
        record = decode_record(row["key"], row["value"])
        assert record.key["group"] == "group"
        if record.name == "OffsetCommit":
            place = (record.key["topic"], record.key["partition"])
            committed[place] = record.value["offset"]
            continue
        assert record.name == "GroupMetadata"
        generations.append(record.value["generation"])
        for member in record.value["members"]:
            assert decode_subscription(member["subscription"]).topics == ("topic",)
            if member["assignment"]:
                assert {t for t, _ in decode_assignment(member["assignment"]).partitions} <= {
                    "topic"
                }
    assert generations == sorted(set(generations))
    assert json.loads(done.out)["rounds"] < len(generations)
    ends = {(r["topic"], r["partition"]): r["end_offset"] for r in dump.offsets().to_pylist()}
    assert set(ends) == {("topic", p) for p in range(6)}
    assert committed
    assert all(0 < offset <= ends[place] for place, offset in committed.items())
    assert dump.topics()["partitions"].to_pylist() == [6]
    assert run("simulate", "--members", "2", "--dump", folder, "--quiet").code == 0
    assert Dump.open(folder).n_records() != len(rows)


def test_a_client_keeps_its_id_over_restarts_and_gets_a_new_member_id(tmp_path):
    folder = tmp_path / "run"
    assert run("simulate", "--members", "3", "--dump", folder, "--quiet").code == 0
    ids: dict[str, set[str]] = {}
    for row in pq.read_table(folder / "records").to_pylist():
        record = decode_record(row["key"], row["value"])
        for member in record.value["members"] if record.name == "GroupMetadata" else ():
            assert member["clientHost"] == "/" + member["clientId"]
            ids.setdefault(member["clientId"], set()).add(member["memberId"])
    assert {client: len(members) for client, members in ids.items()} == {
        "m0000": 2,
        "m0001": 2,
        "m0002": 2,
    }


def test_what_cannot_be_dumped_is_refused(tmp_path):
    (tmp_path / "diary.txt").write_text("dear diary")
    done = run("simulate", "--members", "2", "--dump", tmp_path)
    assert done.code == 3
    assert "already holds 'diary.txt'" in done.err
    done = run("simulate", "--policy", "kip848", "--dump", tmp_path / "new")
    assert done.code == 2
    assert "without a coordinator's log" in done.err
