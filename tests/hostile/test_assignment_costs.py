"""What an assignment of any size costs its member, beside one that gives it all there is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.hostile.cost import MOST, TurnCost, cost_of_work
from tests.hostile.group import ASSIGNORS, TOPICS

from holdfast.core.machine.actions import Action, SendJoin, SendSync, Warn
from holdfast.core.machine.events import (
    CoordinatorFound,
    JoinAnswered,
    MetadataChanged,
    Started,
    SubscriptionChanged,
    SyncAnswered,
)
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.options import MemberOptions
from holdfast.core.wire.layouts.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.core.wire.layouts.container import MemberAssignment, encode_member_assignment

EVERYTHING = tuple((topic, tuple(range(n))) for topic, n in TOPICS.items())


def lies(n_bytes: int) -> Mapping[str, bytes]:
    many = (("orders", tuple(range(n_bytes // 4))),)
    sparse = tuple((f"z{i}", (16_383,)) for i in range(n_bytes // 14))
    often = tuple(("orders", (7,)) for _ in range(n_bytes // 16))
    dense = (("orders", tuple(range(n_bytes))),)
    plain = {"many": many, "sparse": sparse, "often": often}
    framed = {
        "revoked": MemberAssignment(assigned=(), revoked=dense),
        "sets": MemberAssignment(assigned=(), revoked=sparse),
        "planned": MemberAssignment(assigned=(), planned=bytes(n_bytes)),
        "share": MemberAssignment(assigned=(), memory=bytes(n_bytes)),
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


def cost(name: str, assignment: bytes) -> TurnCost:
    return cost_of_work(lambda: answered(name, assignment))


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("n_bytes", [7_000, 250_000])
def test_an_assignment_costs_its_member_at_most_ten_honest_ones(name: str, n_bytes: int) -> None:
    honest = cost(name, encode_assignment(AssignmentMessage(partitions=EVERYTHING)))
    for kind, lie in lies(n_bytes).items():
        found = cost(name, lie)
        assert found.n_calls <= MOST * honest.n_calls, (kind, found, honest)
        # What a member carries without looking at it has its own bytes, once for each layer.
        assert found.peak_bytes <= MOST * honest.peak_bytes + 3 * len(lie), (kind, found, honest)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_more_than_can_exist_is_not_taken_and_a_topic_that_grew_is(name: str) -> None:
    (warn, *_) = answered(name, lies(100_000)["many"])
    assert isinstance(warn, Warn)
    assert "far fewer exist" in warn.text
    grown = (("orders", tuple(range(4 * TOPICS["orders"]))),)
    if isinstance(ASSIGNORS[name], DesignAssignor):
        message = encode_member_assignment(MemberAssignment(assigned=grown, memory=bytes(50_000)))
    else:
        message = encode_assignment(AssignmentMessage(partitions=grown))
    assert not any(isinstance(a, Warn) for a in answered(name, message))
