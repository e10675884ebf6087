"""The adapter of kafka-python, its errors and its start offsets."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from kafka.consumer.subscription_state import ConsumerRebalanceListener, SubscriptionState
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
from tests.members.configured import settings_of
from tests.members.fake_member import done, failed, make_session

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.shared_values import ListenerCall, OffsetToCommit
from holdfast.errors import ClientError, LocalProtocolError, RemoteProtocolError
from holdfast.members.clients.kafka.adapter import CrossThreadCalls, SubscriptionAdapter
from holdfast.members.clients.kafka.coordinator import (
    MemberConsumerCoordinator,
    error_of_commit,
    error_of_late_commit,
)
from holdfast.members.session.session import ClientTraits

A, B = ("t", 0), ("t", 1)
TRAITS = ClientTraits(reports_empty_changes=True, error_stops_commit=False)
CONFIG = {"request_timeout_ms": 10_000, "default_offset_commit_callback": lambda *_: None}


class Notes(ConsumerRebalanceListener):
    """Notes callbacks."""

    def __init__(self):
        self.calls = []

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", assigned))

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", revoked))


class Harness:
    """A member behind kafka-python, which has subscribed; its group does as the test says."""

    def __init__(self, strategy="range", listener=None):
        self.subscription = SubscriptionState("earliest")
        self.subscription.subscribe(["t"], listener=listener)
        self.adapter = SubscriptionAdapter(self.subscription, lambda method, tps: method(tps))
        settings = settings_of(partition_assignment_strategy=strategy)
        self.member, self.session = make_session(settings, self.adapter, TRAITS)
        self.coordinator = MemberConsumerCoordinator(
            SimpleNamespace(config=CONFIG),
            self.subscription,
            SimpleNamespace(add_listener=lambda _: None),
            lambda method, tps: method(tps),
            settings=settings,
            assignors=(),
            network={},
            in_flight=self.session.in_flight,
            calls=CrossThreadCalls(lambda *_: None),
        )
        self.coordinator.session = self.session
        self.member.coordinator.committed = self._committed
        self.n_terms = 0
        self.start_offsets: Future = Future()

    def _committed(self, partitions):
        return self.start_offsets

    def owns(self, generation, *tps):
        terms = {tp: self.n_terms + i for i, tp in enumerate(tps)}
        self.n_terms += len(tps)
        self.member.owns(terms, generation)

    def assign(self, generation, *tps):
        self.owns(generation, *tps)
        self.call(ListenerCall.ASSIGNED, *tps)

    def revoke(self, *tps):
        self.session.mark_pending_revocation(tps, lambda: None)
        self.call(ListenerCall.REVOKED, *tps)

    def call(self, call, *tps):
        self.session.call(call, tps, lambda _: None)
        self.session.begin_poll()

    def reads_to(self, offset, *tps):
        for tp in tps:
            self.subscription.seek(TopicPartition(*tp), offset)

    def positions(self):
        consumed = self.subscription.all_consumed_offsets()
        return {tuple(tp): at.offset for tp, at in consumed.items()}

    def assigned(self):
        return set(map(tuple, self.subscription.assigned_partitions()))

    def fetchable(self):
        return set(map(tuple, self.subscription.fetchable_partitions()))


@pytest.fixture
def harness():
    """An eager member that owns t-0."""
    made = Harness()
    made.assign(1, A)
    return made


# What is assigned


def test_what_is_held_back_or_lost_is_not_handed_out_whatever_else_changes():
    harness = Harness("cooperative-sticky")
    harness.assign(1, A, B)
    harness.reads_to(5, A, B)
    harness.adapter.mark_pending_revocation([A])
    assert harness.fetchable() == {B}
    harness.owns(1, A, B, ("t", 2))
    harness.call(ListenerCall.ASSIGNED, ("t", 2))
    assert harness.fetchable() == {B}, "kafka-python forgets it when the assignment changes"
    harness.adapter.stop_delivery([B])
    assert harness.fetchable() == set()
    assert harness.positions() == {A: 5, B: 5}
    harness.adapter.stop_fetching([A, B])
    assert harness.assigned() == {("t", 2)}


def test_a_cooperative_member_drops_what_is_revoked():
    harness = Harness("cooperative-sticky")
    harness.assign(1, A, B)
    harness.revoke(A)
    assert harness.assigned() == {B}


def test_what_comes_back_to_an_eager_member_goes_on_where_it_was():
    harness = Harness()
    harness.assign(1, A, B)
    harness.reads_to(5, A, B)
    harness.revoke(A, B)
    assert harness.fetchable() == set()
    harness.assign(2, A)
    assert harness.positions() == {A: 5}
    assert harness.fetchable() == {A}
    harness.member.coordinator.answers = [0, 0]
    for offset in (3, 5):
        harness.coordinator.commit_offsets_sync(offsets(offset), 1_000)
    with pytest.raises(CommitFailedError):
        harness.coordinator.commit_offsets_sync(offsets(6), 1_000)


def test_in_a_later_generation_it_begins_where_the_group_has_committed(harness):
    """In the one between somebody else may have had it."""
    harness.reads_to(5, A)
    harness.revoke(A)
    harness.assign(3, A)
    assert harness.assigned() == {A}
    assert harness.positions() == {}


@pytest.mark.parametrize("is_revoked_first", [False, True])
def test_what_a_deadline_or_a_loss_took_does_not_go_on_where_it_was(harness, is_revoked_first):
    harness.reads_to(5, A)
    if is_revoked_first:
        harness.revoke(A)
    harness.session.drop((A,), ())
    if not is_revoked_first:
        harness.call(ListenerCall.REVOKED, A)
    harness.assign(2, A)
    assert harness.positions() == {}


def test_a_loss_is_told_as_a_revocation_to_a_listener_that_knows_no_losses():
    notes = Notes()
    harness = Harness(listener=notes)
    harness.assign(1, A)
    harness.session.drop((A,), (A,))
    harness.call(ListenerCall.LOST, A)
    assert notes.calls == [("assigned", {A}), ("revoked", {A})]
    assert harness.assigned() == set()


# Start positions


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ClientError("NodeNotReadyError"), True),
        (RemoteProtocolError("moved", error_code=ErrorCode.NOT_COORDINATOR), True),
        (RemoteProtocolError("no", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), False),
    ],
)
def test_start_positions_that_nobody_tells_are_asked_for_again(harness, error, passes):
    """A broker that restarts is no error of the application's poll."""
    harness.start_offsets = failed(error)
    if passes:
        assert harness.adapter.init_with_committed_offsets(0) is False
    else:
        with pytest.raises(GroupAuthorizationFailedError):
            harness.adapter.init_with_committed_offsets(0)
    harness.start_offsets = done({A: 7})
    assert harness.adapter.init_with_committed_offsets(60_000) is True, "after a pause"
    assert harness.positions() == {A: 7}


def test_start_positions_that_were_asked_for_under_an_earlier_assignment_are_asked_for_again():
    """Another member may have read on in between, and committed."""
    harness = Harness("cooperative-sticky")
    harness.assign(1, A)
    early = harness.start_offsets
    assert harness.adapter.init_with_committed_offsets(0) is False
    harness.revoke(A)
    harness.assign(3, A)
    early.set_result({A: 7})
    harness.start_offsets = done({A: 9})
    assert harness.adapter.init_with_committed_offsets(0) is True
    assert harness.positions() == {A: 9}


def test_nobody_commits_again_where_a_partition_began(harness):
    harness.start_offsets = done({A: 7})
    assert harness.adapter.init_with_committed_offsets(0)
    assert harness.session.to_commit() == {}
    harness.reads_to(8, A)
    assert harness.session.to_commit() == {A: OffsetToCommit(8)}


class Unanswered(Future):
    """A question that nobody answers; it notes for how long somebody would have waited."""

    waited_s = -1.0

    def result(self, timeout=None):
        self.waited_s = timeout
        raise TimeoutError


@pytest.mark.parametrize("timeout_ms", [60_000, None])
def test_what_stays_is_fetched_while_nobody_tells_where_a_gained_partition_begins(timeout_ms):
    harness = Harness("cooperative-sticky")
    harness.start_offsets = Unanswered()
    harness.assign(1, A, B)
    whole_s = timeout_ms and timeout_ms / 1000
    adapter = harness.adapter
    assert adapter.init_with_committed_offsets(timeout_ms) is False
    assert harness.start_offsets.waited_s == 0.1, (
        "nothing else is there to read, and it may have to end"
    )
    harness.reads_to(5, B)
    assert adapter.init_with_committed_offsets(timeout_ms) is False
    assert harness.start_offsets.waited_s <= 0.05
    with adapter.awaiting_position():
        assert adapter.init_with_committed_offsets(timeout_ms) is False
    assert harness.start_offsets.waited_s == whole_s


# Commits


def offsets(at):
    return {TopicPartition(*A): OffsetAndMetadata(at, "", -1)}


def remote(code):
    return RemoteProtocolError("refused", error_code=code)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (remote(ErrorCode.ILLEGAL_GENERATION), CommitFailedError),
        (remote(ErrorCode.UNKNOWN_MEMBER_ID), CommitFailedError),
        (remote(ErrorCode.REBALANCE_IN_PROGRESS), CommitFailedError),
        (remote(ErrorCode.FENCED_INSTANCE_ID), FencedInstanceIdError),
        (remote(ErrorCode.OFFSET_METADATA_TOO_LARGE), OffsetMetadataTooLargeError),
        (LocalProtocolError("not owned"), CommitFailedError),
        (ClientError("no answer"), KafkaConnectionError),
    ],
)
def test_a_commit_that_failed_raises_what_kafka_python_raises(error, kind):
    assert type(error_of_commit(error)) is kind


def test_a_commit_that_was_tried_until_its_time_was_over_is_late():
    raised = error_of_late_commit(remote(ErrorCode.NOT_COORDINATOR))
    assert isinstance(raised, KafkaTimeoutError)
    assert isinstance(raised.__cause__, NotCoordinatorError)
    fenced = error_of_late_commit(remote(ErrorCode.FENCED_INSTANCE_ID))
    assert isinstance(fenced, FencedInstanceIdError)


def test_a_callback_of_a_commit_is_called_by_a_later_call():
    harness, told = Harness(), []
    harness.assign(1, A)
    sent = harness.coordinator.commit_offsets_async(offsets(5), lambda *found: told.append(found))
    harness.member.coordinator.sent[0].answer.set_result(0)
    assert sent.succeeded() and not told
    harness.coordinator.poll(0)
    assert told == [(offsets(5), None)]


def test_a_commit_that_nobody_answers_is_late(harness):
    with pytest.raises(KafkaTimeoutError):
        harness.coordinator.commit_offsets_sync(offsets(5), 0)


def test_offsets_of_other_types_are_refused():
    harness = Harness()
    for given in ({"t": OffsetAndMetadata(1, "", -1)}, {TopicPartition(*A): 1}):
        with pytest.raises(TypeError):
            harness.coordinator.commit_offsets_sync(given, 0)
