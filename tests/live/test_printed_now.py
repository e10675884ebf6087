"""The output of Kafka's tools, compared with a dump and ``lag`` of the same broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.running import run
from tests.live.crew import ThreadGroup, commit_in, fresh, transaction
from tests.live.kinds import CONSUMER, ask, tools
from tests.live.waiting import until

from holdfast.cluster.cluster import LiveCluster
from holdfast.core.wire.one.topic_ids import offsets_partition
from holdfast.fleet.pipeline.ingest.dump import write_dump
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, KafkaFeed
from holdfast.fleet.pipeline.ingest.printed.dumps import write_printed

pytestmark = pytest.mark.broker

LOG = "org.apache.kafka.tools.DumpLogSegments"
FORMATTERS = "org.apache.kafka.tools.consumer."
SHOWN = ("topic", "partition", "current_offset", "log_end_offset", "lag", "member_id", "client_id")


def printed_log(broker, group: str) -> str:
    """What the tool prints of the partition that has a group's records."""
    partition = offsets_partition(group, 4)
    folder = Path(broker.folder) / "node-1" / "data" / f"{OFFSETS_TOPIC}-{partition}"
    files = ",".join(sorted(map(str, folder.glob("*.log"))))
    code, out, err = tools().ask(LOG, "--offsets-decoder", "--files", files)
    assert code == 0, err
    return out


def printed_records(bootstrap: str, formatter: str) -> str:
    """What the console consumer prints of the topic, as far as it is committed."""
    at = ("--bootstrap-server", bootstrap, "--topic", OFFSETS_TOPIC, "--from-beginning")
    more = ("--isolation-level", "read_committed", "--timeout-ms", "10000")
    _, out, _ = tools().ask(CONSUMER, *at, *more, "--formatter", f"{FORMATTERS}{formatter}")
    return out


def in_transactions(bootstrap: str, group: str, topic: str) -> None:
    """Commit 5 in a transaction that is committed, and 77 in one that is aborted."""
    for offset, end in ((5, "commit"), (77, "abort")):
        producer = transaction(bootstrap)
        commit_in(producer, bootstrap, group, topic, offset)
        getattr(producer, f"{end}_transaction")(60)


def rows(*words):
    return run(*words, "--format", "json").rows()


@pytest.fixture(scope="module")
def lived(broker):
    """A group that works, and one whose commits were made in transactions."""
    exact = fresh("exact")
    with ThreadGroup(broker.bootstrap, 6, 50) as group:
        group.join()
        group.join()
        group.await_spread()
        group.await_read()
        in_transactions(broker.bootstrap, exact, group.topic.name)
        at = ("lag", "-b", broker.bootstrap, "--group", group.name)
        until(lambda: sum(r["lag"] or 0 for r in rows(*at)) == 0, "every commit")
        yield (group.name, exact), group.topic.name


def records_of(dump, groups):
    """Key, and how long the value is, of the records of groups: versions inside are not printed."""
    names = [name.encode() for name in groups]
    found = [row for batch in dump.rows().here() for row in batch.to_pylist()]
    return [
        (r["key"], r["value"] and len(r["value"]))
        for r in found
        if any(n in r["key"] for n in names)
    ]


@pytest.mark.slow
def test_a_printed_log_makes_the_tables_of_a_dump(broker, lived, tmp_path):
    (working, exact), _ = lived
    feed = KafkaFeed(cluster=LiveCluster(bootstrap=broker.bootstrap))
    for group in (working, exact):
        dump = write_dump(feed, tmp_path / group / "dump", groups=[group])
        text = tmp_path / f"{group}.txt"
        text.write_text(printed_log(broker, group), "utf-8", newline="")
        printed = write_printed(text, tmp_path / group / "printed", print)
        wanted, found = records_of(dump, [group]), records_of(printed, [group])
        assert found[: len(wanted)] == wanted and wanted
        for command in (("history", "--table", "generations"), ("lag",)):
            ours, theirs = (
                rows(*command, "--input", source, "--group", group)
                for source in (text, tmp_path / group / "dump")
            )
            unknown = {"log_start_offset", "log_end_offset", "lag", "lag_by_reset", "lag_seconds"}
            unknown |= {"lag_seconds_basis", "has_unread", "is_idle", "clamped", "catch_up_seconds"}
            for one in (*ours, *theirs):
                for name in unknown & set(one):
                    del one[name]

            def by_place(one):
                return (one.get("topic", ""), one.get("partition", 0), one.get("log_offset", 0))

            assert sorted(ours, key=by_place)[: len(theirs)] == sorted(theirs, key=by_place)


@pytest.mark.slow
def test_what_the_console_consumer_prints_has_the_same_commits_and_members(broker, lived, tmp_path):
    (working, exact), topic = lived
    texts = [
        printed_records(broker.bootstrap, name)
        for name in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
    ]
    file = tmp_path / "records.txt"
    file.write_text("".join(texts), "utf-8", newline="")
    groups = ("--group", working, "--group", exact)
    found = rows("lag", "--input", file, *groups)
    live = rows("lag", "-b", broker.bootstrap, *groups)
    names = ("group", "topic", "partition", "current_offset", "member_id", "client_id")
    wanted = {tuple(row[name] for name in names) for row in live}
    assert {tuple(row[name] for name in names) for row in found} == wanted
    assert (exact, topic, 0, 5, None, None) in wanted


def test_described_groups_are_the_lags_of_now(broker, lived, tmp_path):
    """``kafka-consumer-groups`` and ``lag`` agree, and the one is read as the other."""
    (working, exact), _ = lived
    file = tmp_path / "described.txt"
    for group in (working, exact):
        file.write_text(ask("consumer", broker.bootstrap, "--describe", "--group", group))
        ours = rows("lag", "--input", file, "--group", group)
        live = rows("lag", "-b", broker.bootstrap, "--group", group)
        assert [{n: row[n] for n in SHOWN} for row in ours] == [
            {n: row[n] for n in SHOWN} for row in live
        ]
    run("plan", "--assignor", "sticky", "--input", file).passed()
