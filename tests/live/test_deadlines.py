"""A program works longer than its group waits: commits, records read again, reports.

All clients run in parallel, each in a group of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from aiokafka.errors import CommitFailedError as AiokafkaCommitFailed
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.errors import CommitFailedError
from tests.live.crew import Topic, fresh
from tests.live.waiting import until
from tests.live.working import (
    Aiokafka,
    Confluent,
    ConfluentLists,
    KafkaPython,
    KafkaPythonLoop,
    Ours,
    Program,
    committed,
    twice,
)

from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import RemoteProtocolError

pytestmark = pytest.mark.broker
KINDS = (Ours, Confluent, ConfluentLists, KafkaPython, KafkaPythonLoop, Aiokafka)
IN_LISTS = (Ours, Confluent, KafkaPython, Aiokafka)
NOTHING = {0: -1001, 1: -1001}


class Harness:
    """One program works on its last records, and another one joins."""

    def __init__(self, kind: type[Program], broker: Any, **config: Any):
        self._broker, self._kind, self._config = broker, kind, config
        self.topic, self.group = Topic(broker.bootstrap, 2, 10), fresh(kind.__name__.lower())
        self.first = self.program()
        self.first.n = 20
        self.first.start()
        until(self.first.works.is_set, f"{self.group}: it works on its last records")
        self.second = self.program()
        self.second.start()

    def program(self) -> Program:
        return self._kind(self._broker.bootstrap, self.group, self.topic.name, **self._config)

    def committed(self) -> dict[int, int]:
        return committed(self._broker.bootstrap, self.group, self.topic.name, 2)

    def end(self) -> set[tuple[int, int]]:
        """Go on, read what is new, and close; return what was read twice."""
        first, second = self.first, self.second
        n_polls = first.n_polls
        first.go_on()
        # It hears of its loss in a poll; closed before that, `holdfast.Consumer` raises the loss.
        until(
            lambda: first.n_polls > n_polls or not first.is_alive(), f"{self.group}: it polls again"
        )
        self.topic.produce(1)
        until(lambda: {(0, 10), (1, 10)} <= {*first.read, *second.read}, f"{self.group}: the rest")
        # The one that closes last reads what the other one has not committed once more.
        seen = [*first.read, *second.read]
        first.end()
        second.end()
        assert set(seen) == {(p, at) for p in (0, 1) for at in range(11)}
        return twice(seen)


def side_by_side(play: Callable[[type[Program]], None], kinds: Iterable[type[Program]]) -> None:
    with ThreadPoolExecutor(len(KINDS)) as pool:
        for done in [pool.submit(play, kind) for kind in kinds]:
            done.result()


def key(kind: type[Program], name: str) -> str:
    """What the program calls it."""
    is_word = issubclass(kind, KafkaPython | Aiokafka)
    return name.replace(".", "_") if is_word else name


def warned(caplog: Any, harness: Harness, limit: str) -> list[str]:
    """What the member of this scene said about a limit."""
    texts = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    return [text for text in texts if text.startswith(f"{harness.group}:") and limit in text]


def test_at_the_deadline_of_a_revocation_only_what_is_in_flight_is_read_again(broker, caplog):
    def play(kind: type[Program]) -> None:
        harness = Harness(kind, broker, holdfast_drain_timeout_ms=2_000)
        until(harness.second.owns, f"{harness.group}: the second one has its share")
        assert harness.first.works.is_set()
        (text,) = warned(caplog, harness, f"2 s ({key(kind, 'holdfast.drain.timeout.ms')})")
        assert f"revoked {harness.topic.name}-0, {harness.topic.name}-1 after" in text
        assert harness.end() == set(harness.first.in_flight)

    side_by_side(play, KINDS)


def test_a_program_that_asks_for_nothing_leaves_and_only_what_is_in_flight_is_read_again(
    broker, caplog
):
    def play(kind: type[Program]) -> None:
        harness = Harness(kind, broker, max_poll_interval_ms=8_000, session_timeout_ms=8_000)
        until(lambda: len(harness.second.owns()) == 2, f"{harness.group}: the second one has all")
        assert warned(caplog, harness, f"no poll for 8 s ({key(kind, 'max.poll.interval.ms')})")
        assert harness.end() == set(harness.first.in_flight)

    side_by_side(play, KINDS)


def code(error: Any) -> int:
    """Kafka's, of an error of ours or of confluent-kafka."""
    return error.error_code if isinstance(error, RemoteProtocolError) else error.args[0].code()


@pytest.mark.every
def test_with_manual_commits_nothing_is_committed_at_a_deadline_and_a_commit_hears_why(broker):
    def play(kind: type[Program]) -> None:
        manual = {"enable_auto_commit": False}
        harness = Harness(kind, broker, holdfast_drain_timeout_ms=2_000, **manual)
        until(harness.second.owns, f"{harness.group}: the second one has its share")
        assert harness.committed() == NOTHING
        harness.end()
        raised = harness.first.raised
        if kind is KafkaPython:
            assert isinstance(raised, CommitFailedError)
        else:
            expected = RemoteProtocolError if kind is Ours else confluent_kafka.KafkaException
            assert isinstance(raised, expected)
            assert code(raised) == ErrorCode.ILLEGAL_GENERATION

    def play_lost(kind: type[Program]) -> None:
        manual = {"enable_auto_commit": False, "session_timeout_ms": 8_000}
        harness = Harness(kind, broker, max_poll_interval_ms=8_000, **manual)
        until(lambda: len(harness.second.owns()) == 2, f"{harness.group}: the second one has all")
        assert harness.committed() == NOTHING
        harness.end()
        raised = harness.first.raised
        if kind in (Ours, Confluent):
            assert code(raised) == ErrorCode.UNKNOWN_MEMBER_ID
        else:
            assert isinstance(raised, (CommitFailedError, AiokafkaCommitFailed))

    side_by_side(play, (Ours, Confluent, KafkaPython))  # aiokafka does not wait with manual commits
    side_by_side(play_lost, IN_LISTS)


def test_a_work_shorter_than_the_interval_loses_nothing_and_its_commit_is_taken(broker):
    def play(kind: type[Program]) -> None:
        harness = Harness(kind, broker, enable_auto_commit=False)
        until(harness.first.is_revoking, f"{harness.group}: the first one has heard of the round")
        assert harness.second.owns() == set()
        harness.first.go_on()
        until(
            lambda: harness.committed() == {0: 10, 1: 10}, f"{harness.group}: its commit is taken"
        )
        assert harness.end() == set()
        assert harness.first.raised is None

    side_by_side(play, (Ours, Confluent, KafkaPython))


def test_a_program_that_is_expelled_while_its_group_waits_for_it_is_notified_of_it(broker):
    def play(kind: type[Program]) -> None:
        harness = Harness(kind, broker, enable_auto_commit=False)
        until(harness.first.is_revoking, f"{harness.group}: the first one has heard of the round")
        member_id = harness.first.runtime().member_thread.snapshot.identity.member_id
        with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
            client.remove_group_members(harness.group, [MemberToRemove(member_id=member_id)])
        until(lambda: len(harness.second.owns()) > 0, f"{harness.group}: the second one goes on")
        until(lambda: not harness.first.is_revoking(), f"{harness.group}: the first one has heard")
        harness.end()
        raised = harness.first.raised
        if kind is KafkaPython:
            assert isinstance(raised, CommitFailedError)
        else:
            assert code(raised) == ErrorCode.UNKNOWN_MEMBER_ID

    side_by_side(play, (Ours, Confluent, KafkaPython))


def test_what_the_application_stores_itself_is_all_that_a_deadline_commits(broker):
    """Of a partition of which it has stored nothing, a hand-over commits where the term began."""
    harness = Harness(
        Confluent,
        broker,
        holdfast_drain_timeout_ms=3_000,
        enable_auto_offset_store=False,
    )
    at = confluent_kafka.TopicPartition(harness.topic.name, 0, 4)
    harness.first.consumer.store_offsets(offsets=[at])
    until(harness.second.owns, "the second one has its share")
    assert harness.committed() == {0: 4, 1: 0}
    harness.end()


def test_a_partition_without_records_in_flight_holds_up_no_round(broker):
    """A program of aiokafka has asked past all that it was handed, and asks for nothing now."""
    topic, group = Topic(broker.bootstrap, 2, 5), fresh("group")
    patient = {"rebalance_timeout_ms": 600_000}  # longer than the test waits
    first = Aiokafka(broker.bootstrap, group, topic.name, **patient)
    records: list[Any] = []
    while len(records) < 10:
        records += first.take()
    assert first.take() == []
    second = Aiokafka(broker.bootstrap, group, topic.name, **patient)
    second.start()
    until(second.owns, "the second one has its share")
    first.close()
    second.end()
    assert second.read == []
