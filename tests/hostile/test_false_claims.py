"""A leader that did not lead the last round, and a member that claims what others own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.hostile.group import ASSIGNORS, TOPICS, HostileGroup
from tests.hostile.laws import kept, kept_with_the_truth, revoked_without_need
from tests.hostile.lies import Known

from holdfast.core.machine.leader.designs import compute
from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription

EVERYTHING = tuple((topic, tuple(range(n))) for topic, n in TOPICS.items())


def kept_by(group: HostileGroup, *, gone: int = 0, unbroken: bool = True) -> dict[str, int]:
    """What members keep if a liar claims everything under the last generation."""
    group.led = None
    lie = Subscription(topics=tuple(TOPICS), owned=EVERYTHING, generation=group.generation)
    for name in [m for m in sorted(group.members) if m != group.leader][:gone]:
        del group.members[name]
    request = group.request(encode_subscription(lie))
    request = replace(request, partitions=tuple(TOPICS.items()), unbroken=unbroken)
    done = compute([group.assignor], request)
    assert done.failure is None
    told = {m: group.assignor.read(data) for m, data in done.assignments if m in group.members}
    return {
        name: len(own & t.assigned if t.absence_revokes else own - t.revoked)
        for name, t in told.items()
        for own in [group.members[name].owned]
    }


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_leader_believes_itself(name: str) -> None:
    group = HostileGroup(ASSIGNORS[name], 0)
    group.settle()
    found = kept_by(group)
    assert found[group.leader] >= len(group.members[group.leader].owned) - 1  # its even share


@pytest.mark.parametrize("name", ["cooperative-sticky", "holdfast-simple"])
def test_without_a_memory_nobody_knows_who_is_right(name: str) -> None:
    group = HostileGroup(ASSIGNORS[name], 0)
    group.settle()
    assert {n for m, n in kept_by(group).items() if m != group.leader} == {0}


@pytest.mark.parametrize("name", ["holdfast-deferred", "holdfast-incremental"])
@pytest.mark.parametrize("gone", [0, 1, 3])
def test_the_memory_settles_who_is_right(name: str, gone: int) -> None:
    group = HostileGroup(ASSIGNORS[name], 0)
    group.settle()
    found = kept_by(group, gone=gone)
    share = sum(TOPICS.values()) // (len(group.members) + 1)
    assert all(n >= min(share, len(group.members[m].owned)) for m, n in found.items())


def test_a_leader_that_was_not_in_the_last_round_does_not_believe_itself() -> None:
    group = HostileGroup(ASSIGNORS["holdfast-simple"], 0)
    group.settle()
    assert set(kept_by(group, unbroken=False).values()) == {0}


class ClaimsEverything:
    """A liar that claims all partitions under the last generation, every time."""

    def subscription(self, known: Known) -> bytes:
        """What it sends."""
        return encode_subscription(
            Subscription(topics=tuple(TOPICS), owned=EVERYTHING, generation=known.generation)
        )


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("leaders", [1, 9])
def test_what_it_costs_when_leaders_change(name: str, leaders: int) -> None:
    """Under Designs II and III nothing, else what the others had once; a leader keeps its own."""
    group = HostileGroup(ASSIGNORS[name], 0)
    group.settle()
    needless: Counter[str] = Counter()
    for i in range(9):
        if i < leaders:
            del group.members[group.leader]
        done = group.round(ClaimsEverything())
        needless.update(revoked_without_need(done))
        if name in ("holdfast-deferred", "holdfast-incremental"):
            assert kept(done) >= kept_with_the_truth(done)
        assert done.before[group.leader] <= done.after[group.leader]
    assert max(needless.values(), default=0) <= 1
