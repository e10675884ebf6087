"""Groups beside a transaction that is open in their partition of the offsets topic, on a broker.

Kafka's own tool says what the coordinator counts; every command says the same, names the
transaction, and takes its commits in once it has ended.
"""

from __future__ import annotations

import json
import time
from itertools import count
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.cli.running import run
from tests.live.crew import Topic, fresh
from tests.live.kinds import ask
from tests.live.waiting import until
from tests.pipeline.kinds import printed
from tests.report.served import following, serving
from tests.suites import further

from holdfast.cli.histories import OLD_TRANSACTION_S
from holdfast.core.wire.one.offsets_partition import offsets_partition

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

LATER = {"commit": 5, "abort": None}
"""How the transaction ends, and what its group has committed then."""


def commit(bootstrap, group, topic, offset):
    lone = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, 0, offset)]

    def is_done():
        try:
            return bool(lone.commit(offsets=places, asynchronous=False))
        except KafkaException:  # the coordinator of a new broker loads
            return False

    until(is_done, f"{group} has committed")
    lone.close()


def beside(group):
    """A name whose records are in the same partition of the offsets topic."""
    wanted = offsets_partition(group, 4)
    stem = fresh("beside")
    return next(n for i in count() if offsets_partition(n := f"{stem}-{i}", 4) == wanted)


def opened(bootstrap, group, topic):
    """A producer whose transaction, with a commit of 5, is open."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    reader.subscribe([topic])
    until(lambda: (reader.poll(0.1) and False) or reader.assignment(), "an assignment")
    own = {"transactional.id": fresh("open"), "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": bootstrap, **own})
    producer.init_transactions(60)
    producer.begin_transaction()
    at = [TopicPartition(topic, 0, 5)]
    producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), 60)
    reader.close()
    return producer


def offsets(rows, groups):
    return {row["group"]: row["current_offset"] for row in rows if row["group"] in groups}


def told_by_kafka(bootstrap, groups):
    """{group: committed offset} as Kafka's own tool prints it."""
    found = {}
    for group in groups:
        for row in printed(ask("consumer", bootstrap, "--describe", "--group", group)):
            if row["CURRENT-OFFSET"] != "-":
                found[group] = int(row["CURRENT-OFFSET"])
    return found


def lag(groups, *source):
    words = [word for group in groups for word in ("--group", group)]
    done = run("lag", *source, *words, "--format", "json")
    assert done.code == 0, done.err
    found = offsets(json.loads(done.out)["rows"], groups)
    return {group: offset for group, offset in found.items() if offset is not None}, done.err


@pytest.mark.parametrize("end", further(["commit", "abort"]))
def test_an_open_transaction_hides_nothing_and_is_named(spark, broker, tmp_path, end):
    at, topic = ("-b", broker.bootstrap), Topic(broker.bootstrap, 1, 10).name
    live = fresh("live")
    newcomer, waiting = beside(live), beside(live)
    groups = (live, newcomer, waiting)
    commit(broker.bootstrap, live, topic, 3)
    producer = opened(broker.bootstrap, waiting, topic)
    began = time.monotonic()
    try:
        commit(broker.bootstrap, live, topic, 7)
        commit(broker.bootstrap, newcomer, topic, 2)  # its first one
        wanted = {live: 7, newcomer: 2}
        until(lambda: time.monotonic() - began > OLD_TRANSACTION_S + 1, "it is an old one")
        assert told_by_kafka(broker.bootstrap, groups) == wanted
        named = f"1 record of {waiting} counts once it is committed"
        assert lag(groups, *at)[0] == wanted
        dumped = run("dump", *at, "-o", tmp_path / "dump")
        assert dumped.code == 0 and named in dumped.err, dumped.err
        found, said = lag(groups, "--input", tmp_path / "dump")
        assert found == wanted and named in said
        words = ("--group", live, "--group", waiting, "--group", newcomer)
        table = ("--table", "offset_commits", "--format", "json")
        history = run("history", *at, *words, *table)
        assert history.code == 0 and named in history.err, history.err
        rows = json.loads(history.out)["rows"]
        assert {(r["group"], r["offset"]) for r in rows} == {*wanted.items(), (live, 3)}
        doctor = run("doctor", *at, *words, "--format", "json")
        assert doctor.code == 0 and named in doctor.err, doctor.err
        codes = {f["code"] for g in json.loads(doctor.out)["groups"] for f in g["findings"]}
        assert not {"HF105", "HF109", "HF125"} & codes
        watched = run("watch", *at, "-o", tmp_path / "tables")
        assert watched.code == 0 and named in watched.err, watched.err
        assert lag(groups, "--input", tmp_path / "tables")[0] == wanted
        with following(tmp_path / "tables") as fleet, serving(fleet) as url:
            metrics = urlopen(url + "/metrics", timeout=60).read().decode()
        name = "kafka_consumergroup_current_offset"
        assert f'{name}{{consumergroup="{live}",topic="{topic}",partition="0"}} 7' in metrics
        assert f'{name}{{consumergroup="{newcomer}"' in metrics
        assert f'{name}{{consumergroup="{waiting}"' not in metrics
    finally:
        getattr(producer, f"{end}_transaction")(60)
    if LATER[end] is not None:
        wanted |= {waiting: LATER[end]}
    until(lambda: told_by_kafka(broker.bootstrap, groups) == wanted, "the transaction has ended")
    assert lag(groups, *at)[0] == wanted
    again = run("watch", *at, "-o", tmp_path / "tables")
    assert again.code == 0 and named not in again.err, again.err
    assert lag(groups, "--input", tmp_path / "tables")[0] == wanted
