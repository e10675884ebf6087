"""A member that lies for 50 rounds: laws, and Java's assignor beside us.

``python -m tests.hostile.soak --seeds 20000`` runs as many seeds as it is asked for.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.hostile.group import ASSIGNORS, N_LYING, REMEMBERING, HostileGroup
from tests.hostile.java import JavaAssignor
from tests.hostile.laws import JavaRound, broken_laws, kept, kept_with_the_truth, told_what_waits
from tests.hostile.lies import HABITS, LIAR
from tests.suites import further, long

from holdfast.core.machine.leader import recall
from holdfast.core.machine.policy import Policy
from holdfast.core.wire.layouts.consumer_protocol import decode_subscription

SEEDS, PARTS = range(40), 20
BESIDE_JAVA = range(1_000, 1_012)
HARD = (
    ("cooperative-sticky", 1_010),  # the liar's claims tie with those of honest members
    ("cooperative-sticky", 100_176),  # claims in user data, where a new leader leads
    ("holdfast-deferred", 1_005),  # what waited for the liar goes back to it
    ("holdfast-deferred", 100_010),  # Java gives the liar what it does not subscribe to
    ("holdfast-deferred", 100_034),  # what waited for a static member goes back to it
    ("cooperative-sticky", 300_044),  # what an eager member lists in user data
    ("cooperative-sticky", 301_820),  # the same, in a tie
    ("cooperative-sticky", 306_648),  # balance costs one partition, with the lie or without
    ("cooperative-sticky", 401_500),  # a large message that is read though a name is no UTF-8
    ("holdfast-deferred", 401_934),  # what waited goes back to a liar, newcomers are there
    ("holdfast-deferred", 300_002),  # newcomers are served while something waits
    ("holdfast-deferred", 300_026),  # an impossible generation of a newcomer
    ("holdfast-incremental", 300_815),  # the same, in small batches
    ("holdfast-deferred", 400_858),  # what waited goes back to a liar whose topics are no text
    ("holdfast-deferred", 402_490),  # to one that lists three partitions of others
    ("holdfast-deferred", 412_050),  # to one that lists two in five of all
    ("holdfast-deferred", 501_898),  # the same, while a newcomer is served
    ("holdfast-deferred", 513_198),  # a part of it, to one whose topics are no text
    ("holdfast-deferred", 515_326),  # and a part to a newcomer
    ("holdfast-deferred", 605_014),  # the same, to one that is served, where Java is less even
    ("holdfast-deferred", 502_970),  # an old claim of what a member owned that departs
    ("holdfast-deferred", 607_670),  # what was held back comes, and the liar is below its share
    ("holdfast-deferred", 610_490),  # the same, for two places at once
    ("holdfast-deferred", 621_858),  # the same, to a liar that subscribes to one topic
)


@pytest.mark.parametrize("part", long(range(PARTS)))
@pytest.mark.parametrize("name", further(ASSIGNORS, stays=["holdfast-deferred"]))
def test_one_liar_breaks_no_law(name: str, part: int) -> None:
    for seed in SEEDS[part::PARTS]:
        rounds = list(HostileGroup(name, seed).run())
        assert broken_laws(rounds) == [], seed
        assert len(rounds) > N_LYING


@pytest.mark.parametrize("name", further(REMEMBERING, stays=["holdfast-deferred", "lend"]))
@pytest.mark.parametrize("habit", [h for h in HABITS if h])
@pytest.mark.parametrize("seed", further(range(2)))
def test_what_a_liar_always_says_gives_it_nothing(name: str, habit: str, seed: int) -> None:
    assert broken_laws(list(HostileGroup(name, seed, habit=habit).run())) == []


def test_planted_a_list_that_anybody_carries_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def believed(policy: Policy, carried: list[recall._Carried]) -> object:
        lists = [c.share.waiting for c in carried if c.share.waiting]
        return (lists[0] if lists else ()), True, 2

    monkeypatch.setattr(recall, "_waiting", believed)
    (first, *_) = HostileGroup("lend", 0, habit="homes").run()
    assert kept(first) < kept_with_the_truth(first)


def test_java_is_told_what_a_liar_got_whose_message_nobody_can_read() -> None:
    done = next(iter(HostileGroup("holdfast-deferred", 0).run()))
    who = next(m for m in done.request.members if m.member_id != LIAR)
    others = [m for m in done.request.members if m.member_id != LIAR]
    odd = replace(who, member_id=LIAR, metadata=who.metadata.replace(b"clicks", b"click\xff", 1))
    done = replace(done, request=replace(done.request, members=(odd, *others)))
    told = told_what_waits(done, frozenset(), {LIAR: frozenset({("orders", 0)})})
    (claim,) = (decode_subscription(m.metadata) for m in told.members if m.member_id == LIAR)
    assert claim.owned == (("orders", (0,)),)


@pytest.mark.slow
@pytest.mark.broker
def test_one_liar_costs_the_others_no_more_than_in_java() -> None:
    ours = theirs = n_thrown = n_rounds = 0
    with JavaAssignor() as java:
        drawn = [(name, seed) for name in ASSIGNORS for seed in BESIDE_JAVA]
        for name, seed in dict.fromkeys((*HARD, *drawn)):
            rounds = list(HostileGroup(name, seed).run())
            lying = rounds[:N_LYING]
            answers = java.ask([JavaRound(done.request.members) for done in lying])
            broken = broken_laws(rounds, answers.kept, java.kept)
            assert broken == [], (name, seed)
            assert len(answers.kept) == N_LYING
            ours += sum(map(kept, lying))
            theirs += sum(each.honest for each in answers.kept)
            n_thrown, n_rounds = n_thrown + len(answers.thrown), n_rounds + N_LYING
    assert ours > theirs
    assert n_thrown < n_rounds / 2
