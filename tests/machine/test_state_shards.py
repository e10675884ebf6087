"""State shards: what three deaths leave of them, which shard counts, and their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine.subscribed import awaited, joined, reports, subscribed
from tests.suites import further

from holdfast.core.assignors.claims import normalise
from holdfast.core.machine.leader.assignor_protocol import LeaderRound
from holdfast.core.machine.leader.delayed_rebalance import find_losses
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.leader.leader import group_of, plan_round
from holdfast.core.machine.leader.ring import LeftOut, RoundState, shards
from holdfast.core.machine.leader.state_reconstruction import LeaderState, reconstruct
from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    digest_of,
    hash_of_topic,
    identity_of,
)
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import TopicPartitions, resources_of
from holdfast.core.wire.layouts.container import (
    decode_member_assignment,
)
from holdfast.core.wire.layouts.record_size import estimate_group_bytes
from holdfast.core.wire.layouts.state_shard import (
    CHANCE_BITS,
    MemberEntry,
    StateShard,
    decode_shard,
    encode_shard,
)

DELAY_MS = 300_000
POLICY = Policy(design=Design.DEFERRED, delay_ms=DELAY_MS)


@dataclass(frozen=True)
class Group:
    """Members after a round, with their shards of its leader state."""

    members: tuple[SubscribedMember, ...]
    owned: Mapping[str, TopicPartitions]
    waiting: tuple[MemberEntry, ...]
    leader_id: str
    partitions: int

    def without(self, *gone: str) -> list[SubscribedMember]:
        return [m for m in self.members if m.member_id not in gone]

    def in_ring(self) -> list[str]:
        return [m.member_id for m in sorted(self.members, key=identity_of)]


def group(
    n: int,
    *,
    each: int = 2,
    idle: int = 0,
    static: int = 0,
    leader: int = 0,
    waits: int = 0,
    left_out: LeftOut = LeftOut.NOTHING,
    salt: str = "",
) -> Group:
    """``n`` members that own ``each`` partitions, but for the last ``idle`` ones."""
    bare = [
        subscribed(f"m{i}{salt}", topics=("t",), instance_id=f"i{i}{salt}" if i < static else None)
        for i in range(n)
    ]
    owned = {
        m.member_id: (("t", tuple(range(i, (n - idle) * each, n - idle))),)
        for i, m in enumerate(bare[: n - idle])
    }
    total = (n - idle) * each
    waiting = tuple(awaited(f"gone{w}", total + w, delay_ms=1_000 + w) for w in range(waits))
    leader_state = RoundState(
        generation=7,
        leader_id=bare[leader].member_id,
        members=tuple(bare),
        owned=owned,
        waiting=waiting,
        pace_ms=4_000,
    )
    given = shards(leader_state, left_out)
    members = tuple(
        reports(
            m,
            owned=owned.get(m.member_id, ()),
            generation=7,
            leader_state=given[m.member_id] or None,
        )
        for m in bare
    )
    return Group(members, owned, waiting, bare[leader].member_id, total + waits)


def reconstructed(
    present: Sequence[SubscribedMember], leader_id: str, policy: Policy = POLICY
) -> LeaderState:
    return reconstruct(policy, present, 8, leader_id)


def knows_the_dead(whole: Group, gone: Sequence[str], leader_id: str) -> None:
    """The next leader knows who died and what it owned, what waited, and the pace."""
    leader_state = reconstructed(
        whole.without(*gone), leader_id, replace(POLICY, interval_ms=10_000)
    )
    assert leader_state.complete
    named = {entry.identity: entry for entry in leader_state.named}
    for m in whole.members:
        if m.member_id in gone and m.member_id in whole.owned:
            (entry,) = [e for i, e in named.items() if identity_of(m).startswith(i)]
            assert entry.owned == whole.owned[m.member_id]
            assert entry.static == (m.instance_id is not None)
    size = max((len(w.identity) for w in leader_state.waiting), default=0)
    assert leader_state.waiting == tuple(
        replace(w, identity=w.identity[:size]) for w in whole.waiting
    )
    assert leader_state.pace_ms == 4_000


# Three deaths


@pytest.mark.parametrize("n", range(2, 9))
def test_of_a_small_group_any_three_die_and_everything_is_known(n):
    for idle, leader in ((0, 0), (0, n - 1), (n // 2, 1)):
        whole = group(n, idle=idle, static=n // 3, leader=leader, waits=2)
        for count in range(min(4, n)):
            for gone in combinations([m.member_id for m in whole.members], count):
                for survivor in whole.without(*gone):
                    knows_the_dead(whole, gone, survivor.member_id)


@pytest.mark.parametrize("n", further([200, 2_000]))
def test_of_a_large_group_any_three_die_and_everything_is_known(n):
    whole = group(n, each=3, static=n // 2, leader=5, waits=3)
    ring, rng = whole.in_ring(), np.random.default_rng(n)
    at = ring.index(whole.leader_id)
    worst = [
        [ring[(at + step) % n] for step in steps] for steps in ((0, 1, 2), (-1, 0, 1), (-2, -1, 0))
    ]
    drawn = [rng.choice(ring, 3, replace=False).tolist() for _ in range(12)]
    for gone in (*worst, *drawn):
        survivors = [name for name in ring if name not in gone]
        knows_the_dead(whole, gone, survivors[int(rng.integers(len(survivors)))])


def test_what_three_deaths_leave_is_planned_with():
    """Deadlines and previous owners survive, whoever died: played through the plan."""
    whole = group(6, waits=1)
    for gone in combinations([m.member_id for m in whole.members], 3):
        present = whole.without(*gone)
        done = plan_round(
            POLICY,
            present,
            {"t": whole.partitions},
            generation=8,
            leader_id=present[0].member_id,
        )
        assert done.delay_ms == 1_000
        assert not any(a.gained or a.revoked for a in done.assignments.values())
        lost = {w.identity[:CHANCE_BITS]: w for w in done.leader_state.waiting}
        for m in whole.members:
            if m.member_id in gone:
                kept = lost[identity_of(m)[:CHANCE_BITS]]
                assert (kept.owned, kept.delay_ms) == (whole.owned[m.member_id], DELAY_MS)


def test_when_more_die_than_are_known_of_the_document_s_heuristic_decides():
    whole = group(12)
    ring = whole.in_ring()
    gone = ring[:6]
    present = whole.without(*gone)
    leader_state = reconstructed(present, ring[-1])
    assert not leader_state.complete
    done = plan_round(POLICY, present, {"t": 24}, generation=8, leader_id=ring[-1])
    assert done.delay_ms == DELAY_MS
    assert not any(a.gained for a in done.assignments.values())
    new_members = [subscribed(f"new{i}", topics=("t",)) for i in range(6)]
    done = plan_round(POLICY, [*present, *new_members], {"t": 24}, generation=8, leader_id=ring[-1])
    assert all(done.assignments[m.member_id].gained for m in new_members)


# Which shard counts


def shard_of(whole: Group) -> StateShard:
    """The shard of the first member."""
    return decode_shard(whole.members[0].subscription.leader_state or b"")


def forged(whole: Group, *ghosts: MemberEntry, **fields) -> bytes:
    """A shard that claims to know the whole group."""
    honest = shard_of(whole)
    size = honest.sizes.identity_bits
    near = tuple(replace(g, identity=g.identity[:size], delay_ms=0) for g in ghosts[:3])
    return encode_shard(replace(honest, whole=True, after="", neighbours=near, **fields))


def ghost(name: str, *numbers: int, delay_ms: int = 2**31 - 1) -> MemberEntry:
    made = awaited(name, *numbers, delay_ms=delay_ms, instance_id=name)
    return replace(made, owned=((hash_of_topic("t")[:CHANCE_BITS], numbers),))


def test_a_day_of_delay_does_not_outlive_a_configuration_of_minutes():
    whole = group(5, waits=0)
    day = replace(awaited("gone0", 10), delay_ms=86_400_000)
    leader_state = RoundState(
        generation=7,
        leader_id="m0",
        members=whole.members,
        owned=whole.owned,
        waiting=(day,),
        pace_ms=86_400_000,
    )
    given = shards(leader_state)
    present = [reports(m, leader_state=given[m.member_id]) for m in whole.members]
    for leader_id in ("m0", "m3"):
        reconstructed_now = reconstructed(present, leader_id)
        assert [w.delay_ms for w in reconstructed_now.waiting] == [DELAY_MS]
        assert reconstructed_now.pace_ms == POLICY.interval_ms
        done = plan_round(POLICY, present, {"t": 11}, generation=8, leader_id=leader_id)
        assert done.delay_ms == DELAY_MS


@pytest.mark.parametrize("leader_id", ["m0", "m3"])
def test_one_member_s_age_voids_no_deadline(leader_id):
    whole = group(6, waits=1)
    for late in whole.members:
        if late.member_id == leader_id:
            continue
        present = [
            reports(m, state_age_ms=2**62) if m is late else reports(m, state_age_ms=400)
            for m in whole.members
        ]
        assert [w.delay_ms for w in reconstructed(present, leader_id).waiting] == [600]


def test_the_leader_s_own_age_counts_before_that_of_others():
    whole = group(6, waits=1)
    present = [reports(m, state_age_ms=100 + 100 * i) for i, m in enumerate(whole.members)]
    assert [w.delay_ms for w in reconstructed(present, "m5").waiting] == [400]
    new_member = subscribed("new", topics=("t",))
    assert [w.delay_ms for w in reconstructed([*present, new_member], "new").waiting] == [600]


def test_what_one_member_says_it_gave_up_voids_no_deadline():
    whole = group(6, waits=1)
    gone = whole.members[2]
    present = [
        reports(m, already_revoked=(("t", tuple(range(whole.partitions))),))
        for m in whole.without(gone.member_id)
    ]
    done = plan_round(
        POLICY, present, {"t": whole.partitions}, generation=8, leader_id=whole.leader_id
    )
    assert done.delay_ms == 1_000
    assert not any(a.gained for a in done.assignments.values())


@pytest.mark.parametrize("leader_id", ["m0", "new"])
def test_a_topic_that_is_new_is_not_the_only_one_that_there_was(leader_id):
    """Nobody need be left who claims anything of a topic: a shard knows it from others."""
    whole = group(4, waits=1)
    present = [reports(m, topics=("t", "u")) for m in whole.without("m3")]
    new = subscribed("new", topics=("t", "u"))
    leader_state = reconstructed([*present, new], leader_id)
    assert {
        topic for w in (*leader_state.named, *leader_state.waiting) for topic, _ in w.owned
    } == {"t"}
    leader_state = reconstructed([reports(m, owned=()) for m in (*present, new)], leader_id)
    assert {
        topic for w in (*leader_state.named, *leader_state.waiting) for topic, _ in w.owned
    } == {"t"}


def test_a_share_of_this_round_or_a_later_one_counts_as_none():
    """The coordinator lost records, and a member comes from the rounds that it has forgotten."""
    whole = group(3)
    for generation in (8, 9, 2**31 - 1):
        later = encode_shard(StateShard(generation=generation, whole=True))
        present = [reports(m, leader_state=later) for m in whole.members]
        assert reconstruct(POLICY, present, 8, "m0") is None


def test_the_only_one_that_knows_the_last_round_is_no_new_member_in_it():
    """Seed 5035 of the soak: a member lost its membership, and its shard alone is left."""
    whole = group(2)
    (left,) = whole.without("m0")
    lost = reports(left, owned=(), generation=-1)
    new = subscribed("new", topics=("t",))
    done = plan_round(POLICY, [lost, new], {"t": 4}, generation=8, leader_id="m1")
    handed = {m: resources_of(a.gained) for m, a in done.assignments.items()}
    assert not handed["m1"] & resources_of(whole.owned["m0"])
    assert handed["new"] & resources_of(whole.owned["m0"])


@pytest.mark.parametrize("location", [b"", digest_of("there")])
def test_a_member_of_a_lost_history_is_no_new_member_if_nobody_denies_that_it_was_there(location):
    """Seed 646 of the soak: its share counts as none, and the only one that does not names others.

    In the lost round its identity may have been another one, of which that share can tell.
    """
    whole = group(5)
    first, *others, gone, last = whole.in_ring()
    lost = encode_shard(StateShard(generation=8, whole=True, located=location != b""))
    present = [
        reports(m, owned=(), generation=-1, leader_state=lost)
        for m in whole.members
        if m.member_id in (first, *others)
    ]
    present = [reports(m, location=location) if m.member_id == first else m for m in present]
    present += [m for m in whole.members if m.member_id == last]
    done = plan_round(POLICY, present, {"t": 10}, generation=8, leader_id=first)
    handed = {r for a in done.assignments.values() for r in resources_of(a.gained)}
    assert not handed & resources_of(whole.owned[gone])
    assert done.delay_ms == DELAY_MS


def test_a_member_that_came_in_a_lost_history_is_a_new_member_again():
    """A share of the last round covers its place in the ring, and does not name it."""
    whole = group(3)
    lost = encode_shard(StateShard(generation=8, whole=True))
    new = subscribed("new", topics=("t",), leader_state=lost)
    present = [*whole.without("m2"), new]
    done = plan_round(POLICY, present, {"t": 6}, generation=8, leader_id="m0")
    assert resources_of(done.assignments["new"].gained) == resources_of(whole.owned["m2"])


def test_a_member_that_never_heard_of_the_last_round_does_not_deny_it():
    """The newest generation counts: m1 brings the shard of an older round, without m2."""
    whole = group(3)
    old = encode_shard(StateShard(generation=6, whole=True))
    present = [whole.members[0], reports(whole.members[1], leader_state=old)]
    for leader_id in ("m0", "m1"):
        named = reconstructed(present, leader_id).named
        assert any(identity_of(whole.members[2]).startswith(e.identity) for e in named)


def test_an_old_share_brings_no_departed_member_back():
    """The newest generation counts: m2 left before it, and a member that missed it names m2."""
    whole, after = group(3), group(2)
    late = reports(whole.members[0], owned=(), generation=7)
    for leader_id in ("m0", "m1"):
        newer = replace(decode_shard(after.members[1].subscription.leader_state), generation=8)
        present = [late, reports(after.members[1], generation=8, leader_state=encode_shard(newer))]
        leader_state = reconstruct(POLICY, present, 9, leader_id)
        assert leader_state.generation == 8
        assert not any(
            identity_of(whole.members[2]).startswith(e.identity) for e in leader_state.named
        )


def test_of_shares_of_one_round_that_differ_the_leader_s_counts_then_that_of_the_first_member():
    """A coordinator that lost a record uses a generation twice."""
    here, there = group(4, waits=1), group(4, each=3, waits=2)
    zombies = {m.member_id: m for m in there.members}
    of_m3 = {w: next(g for g in (here, there) if len(g.waiting) == w) for w in (1, 2)}
    present = [*here.members[:2], zombies["m2"]]
    for leader_id, n_waiting in (("m0", 1), ("m2", 2), ("new", 1)):
        leader_state = reconstructed(present, leader_id)
        (entry,) = (
            e for e in leader_state.named if identity_of(zombies["m3"]).startswith(e.identity)
        )
        assert entry.owned == of_m3[n_waiting].owned["m3"]
        assert len(leader_state.waiting) == n_waiting


def spoiled_bytes(shard: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, len(shard) - 1)
    return st.one_of(
        st.just(shard),
        st.binary(max_size=40),
        places.map(lambda at: shard[:at]),
        st.tuples(places, st.binary(min_size=1, max_size=1)).map(
            lambda change: shard[: change[0]] + change[1] + shard[change[0] + 1 :]
        ),
    )


@given(data=st.data())
def test_no_bytes_instead_of_shards_make_a_leader_fail(data):
    whole = group(4, waits=1)
    spoiled = [
        reports(m, leader_state=data.draw(spoiled_bytes(m.subscription.leader_state or b"")))
        for m in whole.members
    ]
    done = plan_round(
        POLICY, spoiled, {"t": whole.partitions}, generation=8, leader_id=whole.leader_id
    )
    assert done.delay_ms <= DELAY_MS
    assert not any(a.revoked for a in done.assignments.values())


# What it costs


def lead(
    members: Sequence[SubscribedMember], partitions: int, policy: Policy, leader_id: str = "m0"
) -> tuple[int, dict[str, bytes]]:
    """The record's estimated bytes, and the assignments."""
    joined_members = joined(members)
    leader_round = LeaderRound(
        members=joined_members, partitions={"t": partitions}, generation=8, leader_id=leader_id
    )
    given = DesignAssignor(policy).lead(leader_round)
    size = estimate_group_bytes(
        (m.member_id, m.instance_id, len(m.metadata) + len(given[m.member_id]))
        for m in joined_members
    )
    return size, given


def shard_bytes(given: Mapping[str, bytes]) -> int:
    return sum(len(decode_member_assignment(data).leader_state or b"") for data in given.values())


@pytest.mark.parametrize("left_out", list(LeftOut))
def test_each_step_leaves_out_more(left_out):
    leader_state = RoundState(
        generation=7,
        leader_id="m0",
        members=group(12).members,
        owned=group(12, each=3).owned,
        waiting=(awaited("gone", 1, 2),),
    )
    sizes = [sum(map(len, shards(leader_state, step).values())) for step in LeftOut]
    assert sizes == sorted(sizes, reverse=True)
    if left_out not in (LeftOut.NOTHING, LeftOut.UNCHANGED):
        assert sizes[left_out] < sizes[left_out - 1]
    assert sizes[LeftOut.STATE] == 0


@pytest.mark.parametrize("static", [0, 40])
def test_the_limits_are_kept_and_what_is_left_out_is_left_out_in_order(static):
    whole = group(40, each=5, waits=2, static=static)
    full, given = lead(whole.members, whole.partitions, POLICY)
    state_bytes, seen = shard_bytes(given), set()
    for limit in range(state_bytes, -1, -31):
        policy = replace(POLICY, leader_state_limit_bytes=limit)
        _, given = lead(whole.members, whole.partitions, policy)
        assert shard_bytes(given) <= limit
        seen.add(shard_bytes(given))
    assert len(seen) >= len(LeftOut) - 1  # UNCHANGED takes nothing from the shards
    least = None
    for limit in range(full + 2_000, 0, -397):
        size, given = lead(
            whole.members, whole.partitions, replace(POLICY, record_limit_bytes=limit)
        )
        if least is None and size > limit:
            least = size  # nothing more can be left out
        assert size <= limit if least is None else size == least
        assert resources_of(decode_member_assignment(given["m0"]).assigned) <= resources_of(
            whole.owned["m0"]
        )
    assert least is not None
    listed = [decode_member_assignment(data).assigned for data in given.values()]
    assert all(listed) if static else not any(listed)


@given(
    n=st.integers(1, 30),
    each=st.integers(0, 9),
    idle=st.integers(0, 5),
    limit=st.integers(0, 6_000),
    noise=st.lists(st.binary(max_size=300), max_size=4),
)
def test_no_group_and_no_bytes_of_others_make_a_leader_pass_the_limit(n, each, idle, limit, noise):
    whole = group(n, each=each, idle=min(idle, n - 1), waits=1)
    members = list(whole.members)
    huge = ghost("ghost", *range(2_000))
    large = forged(
        whole, waiting=(huge,) * 3, sizes=shard_of(whole).sizes._replace(partition_bits=31)
    )
    for i, data in enumerate([large, *noise][:n]):
        members[i] = reports(members[i], leader_state=data)
    policy = replace(POLICY, leader_state_limit_bytes=limit, record_limit_bytes=4_000 + limit)
    size, given = lead(members, whole.partitions, policy)
    assert shard_bytes(given) <= limit
    least, _ = lead(members, whole.partitions, replace(policy, record_limit_bytes=0))
    assert size <= max(policy.record_limit_bytes, least)


@pytest.mark.every
def test_serving_new_members_is_linear():
    """30,000 departed members and 30,000 new members of other topics: 900 million pairs."""
    n = 30_000
    topics = {"t": n, "u": n}
    here = subscribed("a", topics=("t", "u"), generation=7)
    new = [subscribed(f"n{i:05d}", topics=("u",)) for i in range(n)]
    members = sorted([here, *new], key=lambda m: m.member_id)
    leader_state = LeaderState(
        generation=7,
        waiting=tuple(awaited(f"gone{i}", i, delay_ms=1_000 + i) for i in range(n)),
    )
    claims = normalise(group_of(members, topics))
    free = np.ones(2 * n, bool)
    losses = find_losses(POLICY, claims, members, leader_state, free)
    done = losses.settled([w.remaining_ms for w in losses.departed])
    assert len(done.waiting) == n
    assert not (done.reserved >= 0).any()


def test_a_leader_that_cannot_plan_keeps_deadlines_and_owners_going():
    whole = group(6, waits=1)
    present = [reports(m, state_age_ms=400) for m in whole.without("m2")]
    leader_round = LeaderRound(members=joined(present), partitions={}, generation=8, leader_id="m1")
    given = DesignAssignor(POLICY).stay(leader_round)
    after = [
        reports(
            m,
            leader_state=decode_member_assignment(given[m.member_id]).leader_state,
            state_age_ms=0,
            generation=8,
        )
        for m in present
    ]
    done = plan_round(POLICY, after, {"t": whole.partitions}, generation=9, leader_id="m4")
    assert done.delay_ms == 600
    lost = {w.identity[:CHANCE_BITS]: w for w in done.leader_state.waiting}
    assert lost[identity_of(whole.members[2])[:CHANCE_BITS]].owned == whole.owned["m2"]
    assert not any(a.gained for a in done.assignments.values())
