"""A leader that did not lead the last round, and a member that claims what others own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.hostile.forgers import LIES, N_LIARS, played
from tests.hostile.group import ASSIGNORS, REMEMBERING, TOPICS, HostileGroup
from tests.hostile.laws import DEFERRING, kept, kept_with_the_truth, revoked_without_need
from tests.hostile.lies import Known, Liar
from tests.suites import further

from holdfast.core.machine.leader import false_claims, leader, recall
from holdfast.core.machine.leader.designs import compute
from holdfast.core.model.columns import Mask
from holdfast.core.model.group import Group
from holdfast.core.model.partitions import Resource, grouped
from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription
from holdfast.core.wire.layouts.container import MemberSubscription, encode_member_subscription

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
    group = HostileGroup(name, 0)
    group.settle()
    found = kept_by(group)
    assert found[group.leader] >= len(group.members[group.leader].owned) - 1  # its even share


@pytest.mark.parametrize("name", ["cooperative-sticky", "holdfast-simple"])
def test_without_a_memory_nobody_knows_who_is_right(name: str) -> None:
    group = HostileGroup(name, 0)
    group.settle()
    assert {n for m, n in kept_by(group).items() if m != group.leader} == {0}


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("gone", [0, 1, 3])
def test_the_memory_settles_who_is_right(name: str, gone: int) -> None:
    group = HostileGroup(name, 0)
    group.settle()
    found = kept_by(group, gone=gone)
    here = sum(len(m.owned) for m in group.members.values())  # what the others owned waits
    share = here // (len(group.members) + 1)
    assert all(n >= min(share, len(group.members[m].owned)) for m, n in found.items())


def test_a_leader_that_was_not_in_the_last_round_does_not_believe_itself() -> None:
    group = HostileGroup("holdfast-simple", 0)
    group.settle()
    assert set(kept_by(group, unbroken=False).values()) == {0}


class ClaimsEverything:
    """A liar that claims all partitions under the last generation, every time."""

    def subscription(self, known: Known) -> bytes:
        return encode_subscription(
            Subscription(topics=tuple(TOPICS), owned=EVERYTHING, generation=known.generation)
        )


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("leaders", [1, 9])
def test_what_it_costs_when_leaders_change(name: str, leaders: int) -> None:
    """Where members remember nothing, else what the others had once; a leader keeps its own."""
    group = HostileGroup(name, 0)
    group.settle()
    needless: Counter[str] = Counter()
    for i in range(9):
        if i < leaders:
            del group.members[group.leader]
        done = group.round(ClaimsEverything())
        needless.update(revoked_without_need(done))
        if name in REMEMBERING:
            assert kept(done) >= kept_with_the_truth(done)
        assert done.before[group.leader] <= done.after[group.leader]
    assert max(needless.values(), default=0) <= 1


class ClaimsMore(Liar):
    """A member that claims its own and what departed members owned, so many times."""

    more: frozenset[Resource] = frozenset()
    times = 0

    def subscription(self, known: Known) -> bytes:
        self.times -= 1
        owned = known.mine | (self.more if self.times >= 0 else frozenset())
        generation = known.generation if known.memory else -1
        return encode_member_subscription(
            MemberSubscription(
                topics=tuple(TOPICS),
                owned=grouped(sorted(owned)),
                generation=generation,
                memory=known.memory,
            )
        )


def after_a_departure(name: str, times: int, *, changing: bool) -> tuple[int, int, int]:
    """Five members leave and are back after 20 s, while one claims what they owned.

    How much they owned, how much of it others were given meanwhile, and how much they got back.
    """
    group, liar = HostileGroup(name, 1), ClaimsMore(np.random.default_rng(1))
    group._begin_settled()
    for _ in range(60):
        group.round(liar)
    left = [
        group.members.pop(m) for m in [m for m in sorted(group.members) if m != group.leader][3:8]
    ]
    liar.more = frozenset[Resource]().union(*(m.owned for m in left))
    liar.times, until_ms, n_rounds = times, group.now_ms + 20_000, 0

    def led() -> None:
        nonlocal n_rounds
        if changing:  # the one that led is still there, and another one leads
            others = sorted(set(group.members) - {group.leader})
            group.leader, group.led = others[n_rounds % 7], None
        n_rounds += 1
        group.round(liar)

    while group.now_ms < until_ms and n_rounds < 40:
        led()
    meanwhile = frozenset(group.given.assigned).union(*(m.owned for m in group.members.values()))
    for member in left:
        group._start(member.instance_id)
    for _ in range(6):
        led()
    back = frozenset[Resource]().union(*(m.owned for m in list(group.members.values())[-5:]))
    return len(liar.more), len(liar.more & meanwhile), len(liar.more & back)


@pytest.mark.parametrize("name", further(DEFERRING))
@pytest.mark.parametrize(
    ("times", "changing"), further(product((0, 1, 999), (False, True)), [(1, False), (999, True)])
)
def test_a_false_claim_voids_no_wait(name: str, times: int, changing: bool) -> None:
    owned, meanwhile, back = after_a_departure(name, times, changing=changing)
    assert (meanwhile, back) == (0, owned)


def _nothing(group: Group, *_: object) -> Mask:
    return np.zeros(group.topics.n_tps, bool)


@pytest.mark.parametrize(("times", "changing"), [(1, False), (1, True)])
def test_planted_without_the_mends_one_claim_voids_every_wait(
    monkeypatch: pytest.MonkeyPatch, times: int, changing: bool
) -> None:
    """What no leader doubts is dealt, and the members that are back get next to nothing."""
    monkeypatch.setattr(false_claims, "_lost", _nothing)
    monkeypatch.setattr(leader, "awaited_by", _nothing)
    monkeypatch.setattr(false_claims, "_owned_after", lambda *_: np.empty(0, np.int32))
    owned, meanwhile, back = after_a_departure("holdfast-deferred", times, changing=changing)
    assert meanwhile > owned // 2 > back


@pytest.mark.every
@pytest.mark.parametrize("name", DEFERRING)
def test_ten_of_sixty_that_forge_their_shares_take_from_a_few(name: str) -> None:
    done = played(name, 0, LIES[0])
    assert done.dealt == 0
    assert 2 * done.back > done.owned
    assert done.losers < N_LIARS


@pytest.mark.every
def test_planted_ten_of_sixty_are_heard_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "_cut_short", lambda carried: carried)
    done = played("holdfast-deferred", 0, LIES[0])
    assert done.losers > 2 * N_LIARS
