"""Incremental Cooperative Rebalancing, "Member process": one test for each sentence of its lists.

A real member that speaks the design in its bytes; the coordinator and the leader are played.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.machine.player import T0, T1, T2, Player
from tests.strategies import partition_sets

from holdfast.core.machine.actions import (
    CallListener,
    Commit,
    DropNow,
    SendHeartbeat,
    SendJoin,
    SendSync,
    StartFetching,
    StopFetching,
)
from holdfast.core.machine.events import (
    CommitAnswered,
    Drained,
    HeartbeatAnswered,
    ListenerReturned,
    RejoinRequested,
    SyncAnswered,
    Tick,
)
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.leader.subscriptions import read_subscribed_member
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import TopicPartitions, grouped, resources_of
from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    MemberSubscription,
    encode_member_assignment,
)

BOTH = (("t", (0, 1)),)


class Speaking(Player):
    """A member of a design; its assignments are verdicts."""

    def __init__(self, design: Design):
        super().__init__(DesignAssignor(Policy(design=design)))

    def given(self, **assignment):
        """The answer of a sync."""
        data = encode_member_assignment(MemberAssignment(**assignment))
        return self(SyncAnswered(request=self.last(SendSync).request, assignment=data))

    def obey(self):
        """Do what the member has asked for since the last round: drain, callbacks, commit."""
        for action in self.done:  # it grows
            match action:
                case StopFetching(token=token):
                    self(Drained(token))
                case CallListener(token=token):
                    self(ListenerReturned(token))
                case Commit(token=token):
                    self(CommitAnswered(token))

    def claims(self) -> MemberSubscription:
        """What its last JoinGroup says."""
        ((_, metadata),) = self.last(SendJoin).protocols
        return read_subscribed_member("m", None, metadata).subscription

    def round(self, generation: int, **assignment):
        """Another round, caused by somebody else."""
        self.done.clear()
        self(RejoinRequested())
        self.join(generation)
        return self.given(**assignment)


@pytest.fixture(params=list(Design), ids=lambda d: d.name.lower())
def play(request) -> Speaking:
    """A stable member that owns partitions 0 and 1 of t."""
    player = Speaking(request.param)
    player.start()
    player.join(1)
    player.given(assigned=BOTH)
    player.callback()
    return player


def test_a_new_member_includes_its_topics_and_an_empty_assignment():
    for design in Design:
        player = Speaking(design)
        player.start("t", "u")
        claims = player.claims()
        assert (claims.topics, claims.owned) == (("t", "u"), ())


def test_topics_as_usual_in_join_group_and_the_previous_assignment(play):
    play(RejoinRequested())
    claims = play.claims()
    assert (claims.topics, claims.owned, claims.generation) == (("t",), BOTH, 1)


def test_when_it_needs_to_join_it_holds_on_to_all_and_continues_processing(play):
    play.done.clear()
    play(RejoinRequested())
    play.join(2)
    assert not [a for a in play.done if isinstance(a, StopFetching | DropNow | CallListener)]
    assert play.member.owned == (T0, T1)


def test_it_starts_processing_any_new_partitions(play):
    play.round(2, assigned=(("t", (0, 1, 2)),))
    assert play.last(CallListener).resources == (T2,)
    assert play.callback() == (StartFetching((T2,), 1),)
    assert play.member.owned == (T0, T1, T2)


def test_an_assignment_that_omits_what_repeats_changes_nothing(play):
    play.round(2)
    assert play.member.owned == (T0, T1)
    assert not [a for a in play.done if isinstance(a, StopFetching | DropNow)]
    play(RejoinRequested())
    assert play.claims().owned == BOTH


def test_it_stops_the_revoked_only_commits_and_then_joins_immediately(play):
    play.round(2, assigned=(("t", (0,)),), revoked=(("t", (1,)),))
    stop = play.last(StopFetching)
    assert stop.resources == (T1,)  # T0 goes on
    assert len([a for a in play.done if isinstance(a, SendJoin)]) == 1
    (call,) = play(Drained(stop.token))
    assert (call.call, call.resources) == (ListenerCall.REVOKED, (T1,))
    play.callback()
    commit = play.last(Commit)
    assert commit.resources == (T1,)
    assert len([a for a in play.done if isinstance(a, SendJoin)]) == 1  # not before the commit
    (join,) = play(CommitAnswered(commit.token))
    assert isinstance(join, SendJoin)
    assert play.claims().owned == (("t", (0,)),)


def test_what_is_neither_assigned_nor_revoked_stays(play):
    play.round(2, revoked=())
    assert play.member.owned == (T0, T1)
    assert not [a for a in play.done if isinstance(a, StopFetching)]


def test_an_empty_non_null_list_of_revocations_is_joined_again_without_a_heartbeat(play):
    play.round(2, revoked=())
    due_ms = play.member.deadline_ms
    assert due_ms < play.member.data.now_ms + play.member.data.options.heartbeat_interval_ms
    actions = play(Tick(due_ms))
    assert isinstance(actions[-1], SendJoin)
    assert not [a for a in play.done if isinstance(a, SendHeartbeat)]


def test_without_such_a_list_it_stays_until_it_is_notified(play):
    play.round(2)
    actions = play(Tick(play.member.deadline_ms))
    assert [type(a) for a in actions] == [SendHeartbeat]


@pytest.mark.parametrize("play", [Design.DEFERRED, Design.INCREMENTAL], indirect=True)
def test_a_scheduled_timeout_is_rejoined_as_soon_as_possible_after_it(play):
    begin_ms = play.member.data.now_ms
    play.round(2, delay_ms=7_000)
    joins = []
    while play.member.data.now_ms < begin_ms + 7_000 and not joins:
        actions = play(Tick(play.member.deadline_ms))
        for beat in [a for a in actions if isinstance(a, SendHeartbeat)]:
            play(HeartbeatAnswered(beat.request))
        joins = [a for a in actions if isinstance(a, SendJoin)]
    assert play.member.data.now_ms == begin_ms + 7_000
    assert [j.reason for j in joins] == ["scheduled rebalance"]


@pytest.mark.parametrize("play", [Design.DEFERRED, Design.INCREMENTAL], indirect=True)
def test_a_round_before_the_timeout_replaces_it(play):
    play.round(2, delay_ms=7_000)
    play.round(3)
    assert play.member.data.rejoin_at_ms is None
    play.round(4, delay_ms=5_000)
    assert play.member.data.rejoin_at_ms == play.member.data.now_ms + 5_000


# next = (owned - revoked) + assigned

ONE, FOUR = (("t", (1,)),), (("t", (4,)),)


def next_owned(
    owned: TopicPartitions, assigned: TopicPartitions, revoked: TopicPartitions | None
) -> TopicPartitions:
    """What a member owns, and claims next, after an assignment."""
    play = Speaking(Design.SIMPLE)
    play.start(*sorted({topic for topic, _ in (*owned, *assigned)}) or "t")
    play.join(1)
    play.given(assigned=owned)
    play.obey()
    play.round(2, assigned=assigned, revoked=revoked)
    held = play.member.data.previous
    play.obey()
    assert play.member.owned == held
    return grouped(held)


def test_the_documents_example_of_a_member_that_leaves() -> None:
    """Both ways of writing it: A is told all it shall hold, or only what is new."""
    assert next_owned(ONE, (("t", (1, 4)),), ()) == (("t", (1, 4)),)
    assert next_owned(ONE, FOUR, None) == (("t", (1, 4)),)
    assert next_owned(ONE, (), ()) == ONE  # B(assigned:,revoked:) keeps what it has
    assert next_owned((("t", (1, 4)),), (), FOUR) == ONE


@given(partition_sets())
def test_absence_never_revokes(owned) -> None:
    held = next_owned(owned, (), None)
    assert held == next_owned(owned, (), ()) == next_owned(held, owned, None) == owned


@given(partition_sets(), partition_sets(), partition_sets())
def test_next_is_owned_less_revoked_and_assigned(owned, assigned, revoked) -> None:
    """A leader never assigns and revokes the same partition in one message (S4)."""
    had, gone = resources_of(owned), resources_of(revoked)
    gained = resources_of(assigned) - gone
    held = next_owned(owned, grouped(sorted(gained)), revoked)
    assert resources_of(held) == had - gone | gained
    assert list(held) == sorted(held)
