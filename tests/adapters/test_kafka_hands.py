"""kafka-python's subscription in the hands of a seat, its errors and its start positions."""

from __future__ import annotations

from concurrent.futures import Future

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
from tests.adapters.configured import settings_of
from tests.adapters.fake_member import done, failed, take_seat

from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import AdapterError, LocalProtocolError, RemoteProtocolError
from holdfast.members.drop_in.kafka import errors
from holdfast.members.drop_in.kafka.coordinator import GroupCommits
from holdfast.members.drop_in.kafka.hands import SubscriptionHands
from holdfast.members.member.offsets import OffsetToCommit
from holdfast.members.seat.hands import Wishes

A, B = ("t", 0), ("t", 1)
WISHES = Wishes(hears_nothing_new=True, error_stops_commit=False)
CONFIG = {"request_timeout_ms": 10_000, "default_offset_commit_callback": lambda *_: None}


class Notes(ConsumerRebalanceListener):
    """Notes callbacks."""

    def __init__(self):
        self.calls = []

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", assigned))

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", revoked))


class Scene:
    """A member behind kafka-python, which has subscribed; its group does as the test says."""

    def __init__(self, strategy="range", listener=None):
        self.subscription = SubscriptionState("earliest")
        self.subscription.subscribe(["t"], listener=listener)
        self.hands = SubscriptionHands(self.subscription, lambda method, tps: method(tps))
        settings = settings_of(partition_assignment_strategy=strategy)
        self.member, self.seat = take_seat(settings, self.hands, WISHES)
        self.member.link.committed = self._committed
        self.n_terms = 0
        self.places: Future = Future()

    def _committed(self, partitions):
        return self.places

    def owns(self, generation, *tps):
        terms = {tp: self.n_terms + i for i, tp in enumerate(tps)}
        self.n_terms += len(tps)
        self.member.owns(terms, generation)

    def assign(self, generation, *tps):
        self.owns(generation, *tps)
        self.call(ListenerCall.ASSIGNED, *tps)

    def revoke(self, *tps):
        self.seat.hold_back(tps, lambda: None)
        self.call(ListenerCall.REVOKED, *tps)

    def call(self, call, *tps):
        self.seat.call(call, tps, lambda _: None)
        self.seat.come_in()

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
def scene():
    """An eager member that owns t-0."""
    made = Scene()
    made.assign(1, A)
    return made


# What is assigned


def test_what_is_held_back_or_lost_is_not_handed_out_whatever_else_changes():
    scene = Scene("cooperative-sticky")
    scene.assign(1, A, B)
    scene.reads_to(5, A, B)
    scene.hands.hold_back([A])
    assert scene.fetchable() == {B}
    scene.owns(1, A, B, ("t", 2))
    scene.call(ListenerCall.ASSIGNED, ("t", 2))
    assert scene.fetchable() == {B}, "kafka-python forgets it when the assignment changes"
    scene.hands.hide([B])
    assert scene.fetchable() == set()
    assert scene.positions() == {A: 5, B: 5}
    scene.hands.drop([A, B])
    assert scene.assigned() == {("t", 2)}


def test_a_cooperative_member_drops_what_is_revoked():
    scene = Scene("cooperative-sticky")
    scene.assign(1, A, B)
    scene.revoke(A)
    assert scene.assigned() == {B}


def test_what_comes_back_to_an_eager_member_goes_on_where_it_was():
    scene = Scene()
    scene.assign(1, A, B)
    scene.reads_to(5, A, B)
    scene.revoke(A, B)
    assert scene.fetchable() == set()
    scene.assign(2, A)
    assert scene.positions() == {A: 5}
    assert scene.fetchable() == {A}
    scene.member.link.answers = [0, 0]
    commits = GroupCommits(CONFIG)
    for offset in (3, 5):
        commits.wait_for(scene.seat, offsets(offset), 1_000)
    with pytest.raises(CommitFailedError):
        commits.wait_for(scene.seat, offsets(6), 1_000)


def test_in_a_later_generation_it_begins_where_the_group_has_committed(scene):
    """In the one between somebody else may have had it."""
    scene.reads_to(5, A)
    scene.revoke(A)
    scene.assign(3, A)
    assert scene.assigned() == {A}
    assert scene.positions() == {}


@pytest.mark.parametrize("is_revoked_first", [False, True])
def test_what_a_deadline_or_a_loss_took_does_not_go_on_where_it_was(scene, is_revoked_first):
    scene.reads_to(5, A)
    if is_revoked_first:
        scene.revoke(A)
    scene.seat.drop((A,), ())
    if not is_revoked_first:
        scene.call(ListenerCall.REVOKED, A)
    scene.assign(2, A)
    assert scene.positions() == {}


def test_a_loss_is_told_as_a_revocation_to_a_listener_that_knows_no_losses():
    notes = Notes()
    scene = Scene(listener=notes)
    scene.assign(1, A)
    scene.seat.drop((A,), (A,))
    scene.call(ListenerCall.LOST, A)
    assert notes.calls == [("assigned", {A}), ("revoked", {A})]
    assert scene.assigned() == set()


# Start positions


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (AdapterError("NodeNotReadyError"), True),
        (RemoteProtocolError("moved", error_code=ErrorCode.NOT_COORDINATOR), True),
        (RemoteProtocolError("no", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), False),
    ],
)
def test_start_positions_that_nobody_tells_are_asked_for_again(scene, error, passes):
    """A broker that restarts is no error of the application's poll."""
    scene.places = failed(error)
    if passes:
        assert scene.hands.find_starts(0) is False
    else:
        with pytest.raises(GroupAuthorizationFailedError):
            scene.hands.find_starts(0)
    scene.places = done({A: 7})
    assert scene.hands.find_starts(60_000) is True, "after a pause"
    assert scene.positions() == {A: 7}


def test_start_positions_that_were_asked_for_under_an_earlier_assignment_are_asked_for_again():
    """Another member may have read on in between, and committed."""
    scene = Scene("cooperative-sticky")
    scene.assign(1, A)
    early = scene.places
    assert scene.hands.find_starts(0) is False
    scene.revoke(A)
    scene.assign(3, A)
    early.set_result({A: 7})
    scene.places = done({A: 9})
    assert scene.hands.find_starts(0) is True
    assert scene.positions() == {A: 9}


def test_nobody_commits_again_where_a_partition_began(scene):
    scene.places = done({A: 7})
    assert scene.hands.find_starts(0)
    assert scene.seat.to_commit() == {}
    scene.reads_to(8, A)
    assert scene.seat.to_commit() == {A: OffsetToCommit(8)}


class Unanswered(Future):
    """A question that nobody answers; it notes for how long somebody would have waited."""

    waited_s = -1.0

    def result(self, timeout=None):
        self.waited_s = timeout
        raise TimeoutError


@pytest.mark.parametrize("timeout_ms", [60_000, None])
def test_what_stays_is_fetched_while_nobody_tells_where_a_gained_partition_begins(timeout_ms):
    scene = Scene("cooperative-sticky")
    scene.places = Unanswered()
    scene.assign(1, A, B)
    whole_s = timeout_ms and timeout_ms / 1000
    hands = scene.hands
    assert hands.find_starts(timeout_ms) is False
    assert scene.places.waited_s == 0.1, "nothing else is there to read, and it may have to end"
    scene.reads_to(5, B)
    assert hands.find_starts(timeout_ms) is False
    assert scene.places.waited_s <= 0.05
    with hands.awaiting_position():
        assert hands.find_starts(timeout_ms) is False
    assert scene.places.waited_s == whole_s


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
        (AdapterError("no answer"), KafkaConnectionError),
    ],
)
def test_a_commit_that_failed_raises_what_kafka_python_raises(error, kind):
    assert type(errors.of_commit(error)) is kind


def test_a_commit_that_was_tried_until_its_time_was_over_is_late():
    raised = errors.of_commit_in_time(remote(ErrorCode.NOT_COORDINATOR))
    assert isinstance(raised, KafkaTimeoutError)
    assert isinstance(raised.__cause__, NotCoordinatorError)
    fenced = errors.of_commit_in_time(remote(ErrorCode.FENCED_INSTANCE_ID))
    assert isinstance(fenced, FencedInstanceIdError)


def test_a_callback_of_a_commit_is_called_by_a_later_call():
    scene, told = Scene(), []
    scene.assign(1, A)
    commits = GroupCommits(CONFIG)
    sent = commits.begin(scene.seat, offsets(5), offsets(5), lambda *found: told.append(found))
    scene.member.link.sent[0].answer.set_result(0)
    assert sent.succeeded() and not told
    commits.tell()
    assert told == [(offsets(5), None)]


def test_a_commit_that_nobody_answers_is_late(scene):
    with pytest.raises(KafkaTimeoutError):
        GroupCommits(CONFIG).wait_for(scene.seat, offsets(5), 0)


def test_offsets_of_other_types_are_refused():
    scene = Scene()
    for given in ({"t": OffsetAndMetadata(1, "", -1)}, {TopicPartition(*A): 1}):
        with pytest.raises(TypeError):
            GroupCommits(CONFIG).wait_for(scene.seat, given, 0)
