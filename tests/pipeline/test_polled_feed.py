"""History from polls of coordinators: what it records, that it continues, and what it refuses."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.running import run as cli
from tests.live.crew import Topic
from tests.live.kinds import compare_polled, tables_of
from tests.live.polled import Polled
from tests.live.waiting import until
from tests.live.working import committed

from holdfast.cli.histories import open_feed
from holdfast.cli.options import Engine
from holdfast.cluster import groups_now
from holdfast.cluster.cluster import LiveCluster, PartitionEnds
from holdfast.cluster.groups_now import PolledGroups
from holdfast.cluster.snapshot import JOINING, ClusterSnapshot, SeenGroup, SeenGroups, SeenMember
from holdfast.core.kinds import GroupType
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.batches.watch import Stream
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.polled_feed import KnownGroups, PolledFeed
from holdfast.fleet.tables.reading import Tables, open_tables

POLL = ("--engine", "coordinators")


def seen(at_ms, members=None, *, commits=None, gone=(), state="Stable", kind=GroupType.CLASSIC):
    """A poll of one group: member -> partitions of ``t``, and partition -> commit."""
    described = tuple(
        SeenMember(member_id=name, instance_id=None, client_id="c", client_host="/h",
                   partitions=(("t", tuple(own)),) if own else ())
        for name, own in (members or {}).items()
    )  # fmt: skip
    group = SeenGroup(group="g", kind=kind, state=state, protocol="range", members=described)
    groups = {} if members is None else {"g": group}
    states = SeenGroups(queried_ms=at_ms, groups=groups, gone=frozenset(gone))
    known = {} if commits is None else {"g": {("t", p): offset for p, offset in commits.items()}}
    return PolledGroups(seen=states, commits=known)


def records(known, poll):
    """(generation, member -> partitions) or (partition, offset) of each record; None: deleted."""
    found = []
    for key, value in known.changes(poll):
        record = decode_record(key, value)
        if "partition" in record.key:
            offset = None if record.value is None else record.value["offset"]
            found.append((record.key["partition"], offset))
        elif record.value is None:
            found.append(None)
        else:
            members = [one["memberId"] for one in record.value["members"]]
            found.append((record.value["generation"], members))
    return found


def test_a_generation_is_recorded_when_owners_differ_and_a_commit_when_it_moved():
    known = KnownGroups()
    first = seen(1, {"a": [0, 1]}, commits={0: 5})
    assert records(known, first) == [(1, ["a"]), (0, 5)]
    assert records(known, first) == []
    assert records(known, seen(2, {"a": [0], "b": [1]}, commits={0: 6, 1: 1})) == [
        (2, ["a", "b"]),
        (0, 6),
        (1, 1),
    ]
    assert records(known, seen(3, {}, commits={1: 1}, state="Empty")) == [(3, []), (0, None)]
    assert records(known, seen(4, gone=["g"])) == [(1, None), None]
    assert records(known, seen(5, gone=["g"])) == []
    assert records(known, seen(6, {"c": [0]})) == [(4, ["c"])]


def test_a_group_that_rebalances_keeps_its_generation():
    known = KnownGroups()
    assert records(known, seen(1, {"a": [0]})) == [(1, ["a"])]
    assert records(known, seen(2, {"a": [], "b": []}, state=JOINING)) == []
    assert records(known, seen(3, {"a": [0], "b": []})) == [(2, ["a", "b"])]


def test_a_group_that_never_had_a_member_is_not_recorded():
    assert records(KnownGroups(), seen(1, {}, state="Empty")) == []


def test_commits_that_are_not_known_are_not_deleted():
    known = KnownGroups()
    assert records(known, seen(1, {"a": [0]}, commits={0: 5})) == [(1, ["a"]), (0, 5)]
    assert records(known, seen(2, {"a": [0]})) == []


@pytest.mark.parametrize(
    ("ends", "state", "is_polled"),
    [
        (([0, 0], [0, 0]), "Stable", True),
        (([0, 0], [0, 0]), "Empty", True),
        (([0, 0], [0, 0]), JOINING, False),  # Kafka has no record of its first round yet
        (([0, 0], [0, 0]), None, False),
        (([0, 0], [0, 7]), "Stable", False),  # written meanwhile
        (([0, 7],), "Stable", False),  # all deleted
    ],
)
def test_an_offsets_topic_without_any_record_is_not_read_where_groups_are(
    monkeypatch, ends, state, is_polled
):
    asked = iter(([7, 7], *ends))  # the first answer says how much there is to read

    def ends_of(self, topic, only=None):
        return {p: PartitionEnds(end, end, end) for p, end in enumerate(next(asked))}

    monkeypatch.setattr(LiveCluster, "partition_ends", ends_of)
    groups = (
        {} if state is None else {"g": SeenGroup(group="g", kind=GroupType.CLASSIC, state=state)}
    )
    monkeypatch.setattr(
        groups_now, "states_now", lambda *_, **__: SeenGroups(queried_ms=1, groups=groups)
    )
    said = []
    cluster = LiveCluster(bootstrap="127.0.0.1:1")
    with open_feed(cluster, Engine.AUTO, Selection(), bar=lambda n: None, note=said.append) as feed:
        assert isinstance(feed, PolledFeed) is is_polled
    assert ("is empty, though groups are listed" in "".join(said)) is is_polled


@pytest.mark.broker
def test_a_history_by_polls_continues_and_equals_what_coordinators_say(broker, tmp_path):
    group, tables = f"polled-{uuid.uuid4().hex}", tmp_path / "tables"
    topic = Topic(broker.bootstrap, 4)
    topic.write(dict.fromkeys(range(4), 3))

    def poll():
        done = cli("watch", "-b", broker.bootstrap, *POLL, "-o", tables, "--group", group)
        assert done.code == 0 and "coordinators are polled" in done.err, done.err

    def rows(name):
        return open_tables(tables).table(name).to_pylist()

    with ExitStack() as stack:

        def join(client_id):
            member = Polled("confluent", broker.bootstrap, group, topic.name, is_original=True,
                            client_id=client_id, auto_offset_reset="earliest",
                            auto_commit_interval_ms=200)  # fmt: skip
            return stack.enter_context(member)

        first = join("a")
        until(lambda: len(first.owns) == 4, lambda: first.owns)
        until(lambda: sum(committed(broker.bootstrap, group, topic.name, 4).values()) == 12, group)
        poll()
        poll()  # nothing has changed: no generation is added
        assert [g["generation"] for g in rows("generations")] == [1]
        second = join("b")
        until(lambda: len(first.owns) == len(second.owns) == 2, lambda: second.owns)
        poll()
        owners = {
            m["client_id"]: m["n_partitions"] for m in rows("members") if m["generation"] == 2
        }
        assert owners == {"a": 2, "b": 2}
        assert {(r["partition"], r["lag"]) for r in rows("lag")} == {(p, 0) for p in range(4)}
    poll()
    assert [g["state"] for g in rows("generations")] == ["Stable", "Stable", "Empty"]
    assert [r["cause"] for r in rows("rebalances")][1:] == ["join", "leave"]
    done = cli("watch", "-b", broker.bootstrap, "--engine", "python", "-o", tables)
    assert done.code == 0 and "coordinators are polled" in done.err, "the folder is one of polls"
    other = tmp_path / "topic"
    assert cli("watch", "-b", broker.bootstrap, "-o", other, "--group", group).code == 0
    done = cli("watch", "-b", broker.bootstrap, *POLL, "-o", other)
    assert (done.code, "name a new folder" in done.err) == (3, True)


@pytest.mark.broker
def test_one_poll_is_enough_for_history_and_doctor(broker, tmp_path):
    group = f"polled-{uuid.uuid4().hex}"
    topic = Topic(broker.bootstrap, 2)
    with Polled("confluent", broker.bootstrap, group, topic.name, is_original=True) as member:
        until(lambda: len(member.owns) == 2, lambda: member.owns)
        for command in ("doctor", "history"):
            done = cli(command, "-b", broker.bootstrap, *POLL, "--group", group, "--format", "json")
            assert done.code == 0, done.err
            assert group in done.out
        done = cli("dump", "-b", broker.bootstrap, *POLL, "--group", group, "-o", tmp_path / "dump")
        assert done.code == 0, done.err
        (row,) = run(None, tmp_path / "dump", tmp_path / "out").table("members").to_pylist()
        assert (row["group"], row["n_partitions"]) == (group, 2)


@pytest.mark.broker
def test_a_group_of_kip_848_keeps_its_kind_its_epochs_and_its_members(broker, tmp_path):
    """A classic member joins and leaves again; each step equals the tables of the topic."""
    group, topic = f"polled-{uuid.uuid4().hex}", Topic(broker.bootstrap, 4)

    def member(name, protocol):
        return Polled("confluent", broker.bootstrap, group, topic.name, is_original=True,
                      client_id=name, group_protocol=protocol)  # fmt: skip

    def compare(*counts):
        until(
            lambda: sorted(len(one.owns) for one in crew) == [*counts],
            lambda: [one.owns for one in crew],
        )
        tables = tables_of(broker.bootstrap, tmp_path / f"{counts}", group)
        compare_polled(broker.bootstrap, tmp_path, group, tables)

    crew = []
    with member("a", "consumer") as first:
        crew.append(first)
        compare(4)
        with member("b", "classic") as second:
            crew.append(second)
            compare(2, 2)
        crew.pop()
        compare(4)
    crew.pop()
    compare()
    rows = open_tables(tmp_path / "polled").table("generations").to_pylist()
    assert {(row["group_type"], row["protocol"]) for row in rows} <= {
        ("consumer", "uniform"),
        ("consumer", None),
    }


@pytest.mark.parametrize(("after_s", "told"), [(29, False), (31, True)])
def test_a_time_without_polls_is_noted(tmp_path, after_s, told):
    stream = Stream(
        tables=Tables(tmp_path),
        snapshot=lambda: None,
        selection=Selection(),
        every_seconds=10.0,
        poll_notes=dict,
    )
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    end = (begin + timedelta(seconds=after_s)).isoformat()
    before = {"taken_at": begin.isoformat(), "unpolled": [["a", "b"]] * 20}
    snapshot = ClusterSnapshot(cluster_id="c", topics=[], offsets=[], taken_at=end)
    found = stream._unpolled(before, snapshot)["unpolled"]
    assert len(found) == 20
    assert (found[-1] == [begin.isoformat(), end]) is told
