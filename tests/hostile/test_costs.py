"""What claims cost the leader that reads them, and an assignment its member, in counted work.

**Rules.** Of a group of 20, the honest turn is the one in which a member joins. Claims of any size
cost three honest turns in calls; no other part of a message costs more than ten, in calls or in
memory. Calls are those of Python and C functions, memory is the peak by ``tracemalloc``; both are
the same in every run.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from tests.hostile.group import ASSIGNORS, EVERYTHING, TOPICS, Group, settled
from tests.suites import further

from holdfast.core.machine.actions import Action, SendJoin, SendSync, Warn
from holdfast.core.machine.events import (
    CoordinatorFound,
    JoinAnswered,
    MetadataChanged,
    Started,
    SubscriptionChanged,
    SyncAnswered,
)
from holdfast.core.machine.leader.designs import DesignAssignor, compute
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.member_data import MemberOptions
from holdfast.core.model.partitions import TopicPartitions, grouped
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.container import (
    FailedPartitions,
    MemberAssignment,
    MemberSubscription,
    encode_member_assignment,
    encode_member_subscription,
)

MOST_FOR_CLAIMS, MOST = 3, 10
SIZES = (7_500, 250_000)
"""The largest message that is read as it is, and one that is not."""
ALL = grouped(sorted(EVERYTHING))


class Cost(NamedTuple):
    """Counted work."""

    n_calls: int
    peak_bytes: int


def cost_of(work: Callable[[], object]) -> Cost:
    """Do the work once, so that caches are filled, and once for each measure."""
    work()
    n_calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    tracemalloc.start()
    try:
        work()
        return Cost(n_calls, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def cost_of_turn(group: Group, message: bytes) -> Cost:
    """Lead the round in which one more member sends ``message``."""
    return cost_of(lambda: compute([group.assignor], group.request({"other": message})))


def claims(n_bytes: int) -> Mapping[str, TopicPartitions]:
    """Claims of every kind, as many as fit."""
    return {
        "everything": ALL,
        "many": (("orders", tuple(range(n_bytes // 4))),),
        "sparse": tuple((f"z{i}", (16_383,)) for i in range(n_bytes // 14)),
        "repeated": (("orders", tuple(range(121)) * (n_bytes // 484)),),
    }


def others(n_bytes: int) -> Mapping[str, bytes]:
    """Messages that are large for another reason."""
    real = tuple(TOPICS)
    many = (("orders", tuple(range(n_bytes // 4))),)
    alone = (FailedPartitions("orders", f"{i}", (0,)) for i in range(n_bytes // 14))
    framed = {
        "given up": MemberSubscription(topics=real, already_revoked=many),
        "failed": MemberSubscription(
            topics=real, failed=(FailedPartitions("orders", "", tuple(range(n_bytes))),)
        ),
        "failed, each alone": MemberSubscription(topics=real, failed=tuple(alone)),
        "share": MemberSubscription(topics=real, leader_state=bytes(n_bytes)),
    }
    return {
        "user data": encode_subscription(Subscription(topics=real, user_data=bytes(n_bytes))),
        **{kind: encode_member_subscription(value) for kind, value in framed.items()},
    }


@pytest.mark.parametrize("name", further(ASSIGNORS, stays=["holdfast-simple"]))
@pytest.mark.parametrize("n_bytes", SIZES)
def test_no_claim_costs_a_leader_more_than_three_honest_turns(name: str, n_bytes: int) -> None:
    group = settled(name, 20)
    honest = cost_of_turn(group, group.said("other"))
    for age in (0, 1):
        for kind, owned in claims(n_bytes).items():
            said = Subscription(
                topics=tuple(TOPICS), owned=owned, generation=group.generation - age
            )
            found = cost_of_turn(group, encode_subscription(said))
            assert found.n_calls <= MOST_FOR_CLAIMS * honest.n_calls, (kind, found, honest)
            assert found.peak_bytes <= MOST * honest.peak_bytes, (kind, found, honest)


@pytest.mark.parametrize("name", further(ASSIGNORS, stays=["holdfast-simple"]))
@pytest.mark.parametrize("n_bytes", SIZES)
def test_no_message_costs_a_leader_more_than_ten_honest_turns(name: str, n_bytes: int) -> None:
    group = settled(name, 20)
    honest = cost_of_turn(group, group.said("other"))
    for kind, message in others(n_bytes).items():
        found = cost_of_turn(group, message)
        assert found.n_calls <= MOST * honest.n_calls, (kind, found, honest)
        assert found.peak_bytes <= MOST * honest.peak_bytes, (kind, found, honest)


def assignments(n_bytes: int) -> Mapping[str, bytes]:
    """Assignments of a leader that names more than there is."""
    many = (("orders", tuple(range(n_bytes // 4))),)
    sparse = tuple((f"z{i}", (16_383,)) for i in range(n_bytes // 14))
    plain = {"many": many, "sparse": sparse}
    framed = {
        "revoked": MemberAssignment(assigned=(), revoked=(("orders", tuple(range(n_bytes))),)),
        "planned": MemberAssignment(assigned=(), planned=bytes(n_bytes)),
        "share": MemberAssignment(assigned=(), leader_state=bytes(n_bytes)),
    }
    return {k: encode_assignment(AssignmentMessage(partitions=v)) for k, v in plain.items()} | {
        k: encode_member_assignment(v) for k, v in framed.items()
    }


def answered(name: str, assignment: bytes) -> tuple[Action, ...]:
    """What a member does that gets this assignment."""
    assignor = ASSIGNORS[name]
    member = Member([assignor], MemberOptions())
    done: list[Action] = []

    def step(event: object) -> tuple[Action, ...]:
        actions = member.step(0, event)
        done.extend(actions)
        return actions

    step(MetadataChanged(tuple(TOPICS.items())))
    step(SubscriptionChanged(tuple(TOPICS)))
    (find,) = step(Started())
    step(CoordinatorFound(find.request))
    join = next(a for a in done if isinstance(a, SendJoin))
    step(
        JoinAnswered(
            request=join.request,
            error=0,
            generation=1,
            protocol_name=assignor.name,
            leader_id="other",
            member_id="m",
        )
    )
    sync = next(a for a in done if isinstance(a, SendSync))
    return step(SyncAnswered(request=sync.request, error=0, assignment=assignment))


@pytest.mark.parametrize("name", further(ASSIGNORS, stays=["holdfast-simple"]))
@pytest.mark.parametrize("n_bytes", SIZES)
def test_an_assignment_costs_its_member_at_most_ten_honest_ones(name: str, n_bytes: int) -> None:
    honest = cost_of(lambda: answered(name, encode_assignment(AssignmentMessage(partitions=ALL))))
    for kind, data in assignments(n_bytes).items():
        found = cost_of(lambda data=data: answered(name, data))
        assert found.n_calls <= MOST * honest.n_calls, (kind, found, honest)
        # What a member carries without looking at it has its own bytes, once for each layer.
        assert found.peak_bytes <= MOST * honest.peak_bytes + 3 * len(data), (kind, found, honest)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_more_than_can_exist_is_not_taken_and_a_topic_that_grew_is(name: str) -> None:
    (warn, *_) = answered(name, assignments(100_000)["many"])
    assert isinstance(warn, Warn)
    assert "far fewer exist" in warn.text
    grown = (("orders", tuple(range(4 * TOPICS["orders"]))),)
    if isinstance(ASSIGNORS[name], DesignAssignor):
        message = encode_member_assignment(
            MemberAssignment(assigned=grown, leader_state=bytes(50_000))
        )
    else:
        message = encode_assignment(AssignmentMessage(partitions=grown))
    assert not any(isinstance(a, Warn) for a in answered(name, message))
