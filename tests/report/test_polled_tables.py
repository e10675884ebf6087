"""Tables of polls say so wherever they are shown; those of the offsets topic do not."""

from __future__ import annotations

import html
import json
from dataclasses import replace

import pytest
from tests.cli.running import run as cli
from tests.report.served import following
from werkzeug.test import Client

from holdfast.cluster.snapshot import ClusterSnapshot, SeenMember
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.ingest.described_records import generation_record
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.tables.reading import Tables

SAID = "rebalances between two polls, when a commit was made"
HOUR_MS = 3_600_000
FOOTER = "own records in the offsets topic"


def write(folder, *, polled, refused=None, owned=(0,), protocol=""):
    member = SeenMember(member_id="m", instance_id=None, client_id="c", client_host="/h",
                        partitions=(("t", owned),) if owned else ())  # fmt: skip
    key, value = generation_record("g", 1, [member], HOUR_MS, protocol=protocol)
    columns = {"partition": [0], "offset": [0], "timestamp": [1000 * HOUR_MS], "key": [key],
               "value": [value]}  # fmt: skip
    snapshot = ClusterSnapshot(
        cluster_id="one", topics=[], offsets=[], taken_at="1970-01-01T01:01:00+00:00"
    )
    notes = {"polled": True} if polled else {}
    notes |= {"refused_groups": refused, "n_refused_groups": 12} if refused else {}
    write_log(folder / "dump", columns, snapshot, notes=notes)
    run(None, folder / "dump", folder / "tables")


@pytest.mark.parametrize("polled", [True, False])
def test_pages_the_api_and_commands_say_that_tables_come_from_polls(tmp_path, polled):
    write(tmp_path, polled=polled)
    with following(tmp_path / "tables") as fleet:
        client = Client(ServedPages(fleet, is_local=False))
        pages = [client.get(path).text for path in ("/", "/group?name=g")]
        for path in ("/api/groups", "/api/groups/g", "/api/groups/g/members"):
            assert client.get(path).json["polled"] is polled
    page = tmp_path / "report.html"
    for source in ("tables", "dump"):
        done = cli("report", "--input", tmp_path / source, "-o", page)
        assert done.code == 0 and (SAID in done.err) is polled, done.err
        pages.append(page.read_text())
    for text in pages:
        assert (SAID in text, FOOTER in text) == (polled, not polled)
    for source in ("tables", "dump"):
        done = cli("doctor", "--input", tmp_path / source, "--format", "json")
        assert json.loads(done.out)["groups"][0]["polled"] is polled
        assert (SAID in done.err) is polled
    done = cli("doctor", "--input", tmp_path / "tables")
    assert (" UTC by polls: " in done.out) is polled


@pytest.mark.parametrize(("protocol", "is_idle"), [("range", True), ("", False)])
def test_members_are_idle_only_if_their_coordinator_describes_assignments(
    tmp_path, protocol, is_idle
):
    write(tmp_path, polled=True, owned=(), protocol=protocol)
    done = cli("doctor", "--input", tmp_path / "tables")
    assert ("HF106" in done.out) is is_idle, done.out


def test_groups_that_no_poll_could_read_are_named_wherever_tables_are_shown(tmp_path):
    write(tmp_path, polled=True, refused={"a <i>": "GROUP_AUTHORIZATION_FAILED"})
    named = "Not recorded: a <i> (GROUP_AUTHORIZATION_FAILED), and 11 more."
    with following(tmp_path / "tables") as fleet:
        page = Client(ServedPages(fleet, is_local=False)).get("/").text
    assert named in html.unescape(page) and "<i>" not in page
    for source in ("tables", "dump"):
        done = cli("report", "--input", tmp_path / source, "-o", tmp_path / "report.html")
        assert done.code == 0
        assert named in html.unescape((tmp_path / "report.html").read_text())
    done = cli("doctor", "--input", tmp_path / "tables")
    assert "GROUP_AUTHORIZATION_FAILED" in done.err
    done = cli("doctor", "--input", tmp_path / "tables", "--group", "a <i>")
    assert "polls could not read it (GROUP_AUTHORIZATION_FAILED)" in " ".join(done.err.split())


def test_times_without_a_poll_are_told(tmp_path):
    write(tmp_path, polled=True)
    tables = Tables(tmp_path / "tables")
    known = tables.manifest()
    times = [["1970-01-01T01:01:00+00:00", "1970-01-01T01:20:00+00:00"]] * 2
    last = known.batches[-1]
    notes = {**last.notes, "every_seconds": 10.0, "unpolled": times}
    tables.commit(replace(last, notes=notes), made_from=known, operation="UPDATE")
    done = cli("doctor", "--input", tmp_path / "tables")
    said = "No polls from 1970-01-01T01:01:00+00:00 to 1970-01-01T01:20:00+00:00, and 1 earlier"
    assert said in " ".join(done.err.split()), done.err


def test_a_dump_of_polls_is_not_merged(tmp_path):
    write(tmp_path, polled=True)
    done = cli("merge", tmp_path / "dump", tmp_path / "dump", "-o", tmp_path / "merged")
    assert done.code == 3 and "is a poll of coordinators" in done.err
