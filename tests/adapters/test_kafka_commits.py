"""Commits of the member behind kafka-python's consumer; without a broker."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.adapters.drop_in.kafka.coordinator import MemberConsumerCoordinator
from holdfast.errors import AdapterError, RemoteProtocolError
from holdfast.machine import actions
from holdfast.machine.codes import ErrorCode
from holdfast.machine.member.holdings import Identity
from holdfast.machine.states import MemberState

PLACE = TopicPartition("t", 0)


def identity(generation, member_id="m"):
    return Identity(generation=generation, member_id=member_id, instance_id=None)


class Fixture:
    """A coordinator whose member owns one partition, and whose commits are answered by hand."""

    def __init__(self):
        self.sent: list[tuple[dict, int]] = []
        self.answers: deque[Future[int]] = deque()
        self.posted = []
        self.host = SimpleNamespace(standing=None, post=self.posted.append, failure=None, over=None)
        self.is_now(3)
        coordinator = object.__new__(MemberConsumerCoordinator)
        coordinator.config = {
            "group_id": "g",
            "default_offset_commit_callback": lambda *_: None,
            "enable_auto_commit": True,
            "request_timeout_ms": 10_000,
            "retry_backoff_ms": 1,
        }
        coordinator.completed_offset_commits = deque()
        coordinator._async_commit_fenced = False
        coordinator.next_auto_commit_deadline = 0.0
        coordinator._in_hand = set()
        coordinator._given_up = {PLACE: OffsetAndMetadata(9, "", -1)}
        coordinator._commits_last = True
        coordinator._began = {}
        coordinator._subscription = SimpleNamespace(
            all_consumed_offsets=lambda: {PLACE: OffsetAndMetadata(5, "", -1)}
        )
        coordinator._parts = SimpleNamespace(
            host=self.host,
            link=SimpleNamespace(commit=self._commit),
            counters=SimpleNamespace(add=lambda name: None),
        )
        self.coordinator = coordinator

    def is_now(self, generation, state=MemberState.STABLE, member_id="m"):
        self.host.standing = SimpleNamespace(
            identity=identity(generation, member_id), state=state, owned={tuple(PLACE)}
        )

    def _commit(self, offsets, *, generation, member_id, instance_id):
        self.sent.append(({tuple(tp): int(at) for tp, at in offsets.items()}, generation))
        if self.answers:
            return self.answers.popleft()
        self.open = Future()
        return self.open

    def will_answer(self, *codes):
        for code in codes:
            answer = Future()
            answer.set_result(code)
            self.answers.append(answer)


def test_a_commit_that_a_round_overtook_costs_no_partitions():
    """The member has a newer generation when it hears of the refusal: that one was not refused."""
    fixture = Fixture()
    fixture.coordinator._do_auto_commit_offsets_async()
    assert fixture.sent == [({tuple(PLACE): 5}, 3)]
    fixture.is_now(4)
    fixture.open.set_result(ErrorCode.ILLEGAL_GENERATION)
    assert [(event.generation, event.error) for event in fixture.posted] == [(3, 22)]
    _, offsets, error = fixture.coordinator.completed_offset_commits.pop()
    assert isinstance(error, CommitFailedError)
    assert offsets == {PLACE: OffsetAndMetadata(5, "", -1)}


@pytest.mark.parametrize("member_id", ["m", "the next"])
def test_only_another_process_fences_a_consumer(member_id):
    """A commit of this process's last member id may come after its join with the next one."""
    fixture, is_other = Fixture(), member_id == "m"
    fixture.coordinator._do_auto_commit_offsets_async()
    fixture.is_now(4, member_id=member_id)
    fixture.open.set_result(ErrorCode.FENCED_INSTANCE_ID)
    assert fixture.coordinator._async_commit_fenced is is_other
    _, _, error = fixture.coordinator.completed_offset_commits.pop()
    assert isinstance(error, FencedInstanceIdError if is_other else CommitFailedError)


def test_the_commit_of_a_hand_over_follows_the_automatic_one_on_the_same_way():
    fixture = Fixture()
    fixture.coordinator._do_auto_commit_offsets_async()
    done = []
    action = actions.Commit(
        token=1, resources=(tuple(PLACE),), generation=3, member_id="m", instance_id=None
    )
    fixture.coordinator.hand_over(action, done.append)
    assert [offsets for offsets, _ in fixture.sent] == [{tuple(PLACE): 5}, {tuple(PLACE): 9}]
    assert done == []
    fixture.open.set_result(0)
    assert done == [0]


def test_a_commit_is_tried_again_where_another_try_may_help():
    fixture = Fixture()
    fixture.will_answer(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0)
    fixture.coordinator.commit_offsets_sync({PLACE: OffsetAndMetadata(5, "", -1)})
    assert len(fixture.sent) == 3
    fixture.will_answer(ErrorCode.NOT_COORDINATOR)
    with pytest.raises(KafkaTimeoutError) as raised:
        fixture.coordinator.commit_offsets_sync({PLACE: OffsetAndMetadata(5, "", -1)}, 0)
    assert isinstance(raised.value.__cause__, NotCoordinatorError)
    fixture.is_now(3, MemberState.PREPARING_REBALANCE)
    fixture.will_answer(ErrorCode.ILLEGAL_GENERATION, 0)
    fixture.coordinator.commit_offsets_sync({PLACE: OffsetAndMetadata(5, "", -1)})


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError),
        (12, OffsetMetadataTooLargeError),
    ],
)
def test_what_no_try_mends_is_raised_as_kafka_python_does(answer, error):
    fixture = Fixture()
    fixture.will_answer(answer)
    with pytest.raises(error):
        fixture.coordinator.commit_offsets_sync({PLACE: OffsetAndMetadata(5, "", -1)})
    assert len(fixture.sent) == 1


def test_a_commit_that_nobody_answers_fails_as_a_connection_does():
    fixture = Fixture()
    told = []
    fixture.coordinator.commit_offsets_async(
        {PLACE: OffsetAndMetadata(5, "", -1)}, lambda offsets, answer: told.append(answer)
    )
    fixture.open.set_exception(AdapterError("the connection broke"))
    assert not fixture.posted and not told  # told by the next poll
    fixture.coordinator._invoke_completed_offset_commit_callbacks()
    assert [type(error) for error in told] == [KafkaConnectionError]


def test_start_positions_that_were_asked_for_under_an_earlier_assignment_are_asked_for_again():
    """Another member may have read on in between, and committed."""
    fixture = Fixture()
    coordinator = fixture.coordinator
    coordinator._asked, coordinator._lost, coordinator._is_cooperative = Future(), set(), True
    coordinator.auto_commit_interval = 1.0
    coordinator._began[PLACE] = 5
    coordinator._subscription = SimpleNamespace(
        assigned_partitions=set, partitions_auto_assigned=lambda: False
    )
    coordinator._take({PLACE})
    assert coordinator._asked is None and not coordinator._began


def test_nobody_commits_again_where_it_began():
    """Nothing is committed that was not handed out: the last owner's commit stands there."""
    fixture = Fixture()
    coordinator = fixture.coordinator
    coordinator._began = {PLACE: 5}
    coordinator._do_auto_commit_offsets_async()
    assert fixture.sent == []
    coordinator.commit_offsets_async({PLACE: OffsetAndMetadata(8, "", -1)})
    coordinator._do_auto_commit_offsets_async()  # the application went back to 5
    assert [list(offsets.values()) for offsets, _ in fixture.sent] == [[8], [5]]


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (AdapterError("NodeNotReadyError"), True),
        (RemoteProtocolError("moved", error_code=ErrorCode.NOT_COORDINATOR), True),
        (RemoteProtocolError("no", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), False),
    ],
)
def test_start_positions_that_nobody_tells_are_asked_for_again(error, passes):
    """A broker that restarts is no error of the application's poll."""
    fixture = Fixture()
    coordinator = fixture.coordinator
    coordinator._subscription = missing({PLACE})
    coordinator._asked = Future()
    coordinator._asked.set_exception(error)
    if passes:
        assert coordinator.refresh_committed_offsets_if_needed(0) is False
    else:
        with pytest.raises(GroupAuthorizationFailedError):
            coordinator.refresh_committed_offsets_if_needed(0)
    assert coordinator._asked is None


def missing(partitions, *, others=frozenset()):
    """Partitions without a place, and some with one."""
    return SimpleNamespace(
        missing_fetch_positions=lambda: partitions, assigned_partitions=lambda: partitions | others
    )


class Unanswered(Future):
    """A question that nobody answers; it notes for how long somebody would have waited."""

    def result(self, timeout=None):
        self.waited_s = timeout
        raise TimeoutError


@pytest.mark.parametrize("timeout_ms", [60_000, None])
def test_what_stays_is_fetched_while_nobody_tells_where_a_gained_partition_begins(timeout_ms):
    coordinator = Fixture().coordinator
    coordinator._subscription = missing({PLACE}, others={TopicPartition("t", 9)})
    coordinator._asked, coordinator._asked_at = Unanswered(), 0.0
    coordinator.is_asked_for_place = False
    assert coordinator.refresh_committed_offsets_if_needed(timeout_ms) is False
    assert coordinator._asked.waited_s == 0
    coordinator.is_asked_for_place = True
    assert coordinator.refresh_committed_offsets_if_needed(timeout_ms) is False
    assert coordinator._asked.waited_s == (timeout_ms and timeout_ms / 1000)
    coordinator.is_asked_for_place = False
    coordinator._subscription = missing({PLACE})
    assert coordinator.refresh_committed_offsets_if_needed(timeout_ms) is False
    assert coordinator._asked.waited_s == (timeout_ms and timeout_ms / 1000)
