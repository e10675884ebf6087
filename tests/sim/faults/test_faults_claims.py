"""Fault scenarios 35 to 51: claims of members, and changes of topics.

Where a scenario is about one leader's round, the real leader plans it, with its members in every
order. Claims are by hand for the leader, small worlds have their consequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations

from tests.machine.subscribed import subscribed
from tests.sim.faults.small_worlds import (
    DEFERRED,
    DELAY_MS,
    FOUND_MS,
    SIMPLE,
    InstrumentedWorld,
    ends_well,
    group_is,
    hold,
    leader,
    loads,
    running,
    runs,
    said,
    tape,
    twice,
    until,
    world,
)

from holdfast.core.assignors.registry import assign
from holdfast.core.machine.actions import SendJoin
from holdfast.core.machine.events import JoinedMember, MetadataChanged, SyncAnswered
from holdfast.core.machine.leader.assignor_protocol import Assignor, LeaderRound
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor, EagerAssignor
from holdfast.core.machine.leader.leader import plan_round
from holdfast.core.machine.leader.leader_round import read_group
from holdfast.core.machine.states import GroupState, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.consumer_protocol import (
    StickyUserData,
    Subscription,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.sim.world import World

STICKY = CooperativeAssignor()
COMPLETING = GroupState.COMPLETING_REBALANCE
RACKS = ("x", "y", "z")


# What arrives late, or twice


def test_35_a_response_after_the_session_timeout_is_ignored() -> None:
    w = world("holdfast-simple")
    group = w.coordinator
    w.start(3)
    until(w, lambda: group_is(w, COMPLETING))
    slow = next(p.slot for p in w.living() if p.slot not in (leader(w), 3))
    client, late = w.slots[slow].client, group.generation
    hold(w, SyncAnswered, slow, 12_000)
    w.run(w.now_ms + 20)
    w.split(slow, 9_000)
    until(w, lambda: said(w, f"{client} drops"), 9_000)
    assert not running(w, slow), "cut off, the member stops by itself"
    ends_well(w)  # the answer comes meanwhile
    assert not said(w, f"{client} in generation {late}"), "the late answer is ignored"
    assert said(w, f"{client} in generation {late + 2}"), "the member joins again"


def test_36_a_joingroup_comes_twice() -> None:
    w = world("holdfast-simple", 2)
    kept = tape(w)
    w.start(2)
    twice(w, SendJoin, 2)
    ends_well(w)
    requests = [m.request for m in kept.sent(SendJoin, w.slots[2].client)]
    assert len(requests) > len(set(requests)), "a join arrived twice"
    w = world("holdfast-simple", settle=False)
    w.network.rates.duplicate = 0.5
    w.run(9_000)
    ends_well(w)
    assert w.rounds < 10, "where half of all messages come twice, rounds stay few"


# One partition, several claims


def claimed(**generations: int) -> dict[str, str]:
    """What becomes of the claims that members make to one partition, in any order."""
    members = [
        subscribed(m, topics=("t",), owned=(("t", (0,)),), generation=g)
        for m, g in generations.items()
    ]
    found: list[dict[str, str]] = []
    for order in permutations(members):
        done = plan_round(SIMPLE, order, {"t": 1}, generation=99)
        assert not any(x.gained for x in done.assignments.values()), (
            "another member gains it as well"
        )
        found.append(
            {
                m: "keeps" if x.kept else "revoked" if x.revoked else "nothing"
                for m, x in done.assignments.items()
            }
        )
    assert all(each == found[0] for each in found), "the order of members decides"
    return found[0]


def cooperative(
    partitions: int, **claims: tuple[int, tuple[int, ...]]
) -> tuple[dict[str, set[int]], dict[int, str]]:
    """Kafka's own protocol: what each member is handed, and what is withheld for which member."""
    members = tuple(
        subscriber(name, *numbers, generation=g) for name, (g, numbers) in claims.items()
    )
    return handed(members, partitions)


def subscriber(
    name: str,
    *owned: int,
    version: int = 3,
    generation: int = -1,
    user_data: bytes | None = None,
) -> JoinedMember:
    """A member of topic t that claims ``partitions`` of the topic."""
    value = Subscription(
        version=version,
        topics=("t",),
        user_data=user_data,
        owned=(("t", owned),) if owned else (),
        generation=generation,
    )
    return JoinedMember(member_id=name, metadata=encode_subscription(value, version))


def handed(
    members: tuple[JoinedMember, ...], partitions: int
) -> tuple[dict[str, set[int]], dict[int, str]]:
    """The assignment of topic t as members read it, and what its leader withholds for whom."""
    ready = LeaderRound(members=members, partitions={"t": partitions}, generation=9)
    own = {m: {p for _, p in STICKY.read(data).assigned} for m, data in STICKY.lead(ready).items()}
    triples = [(m.member_id, m.instance_id, m.metadata) for m in members]
    group = read_group("cooperative-sticky", triples, {"t": partitions}, generation=9)
    result = assign(group, "cooperative-sticky")
    ids = result.group.member_ids
    return own, {int(tp): ids[result.target[tp]] for tp in result.pending_tp}


def test_37_two_members_claim_a_partition_same_generation() -> None:
    assert claimed(a=4, b=4) == {"a": "revoked", "b": "revoked"}, "two claims: no member keeps it"
    own, _ = cooperative(1, a=(4, (0,)), b=(4, (0,)))
    assert own == {"a": set(), "b": set()}, "nor under cooperative-sticky"
    three = {"a": "revoked", "b": "revoked", "c": "revoked"}
    assert claimed(a=4, b=4, c=3) == three, "an older third claim does not win either"


def test_38_three_claim_it_two_alike_one_newer() -> None:
    newest = {"a": "revoked", "b": "revoked", "c": "keeps"}
    assert claimed(a=4, b=4, c=5) == newest, "the newest claim counts"
    own, withheld = cooperative(1, a=(4, (0,)), b=(4, (0,)), c=(5, (0,)))
    assert withheld == {}, "cooperative-sticky: the newest one keeps it as well,"
    assert own == {"a": set(), "b": set(), "c": {0}}, "whatever older claims say"
    own, withheld = cooperative(1, a=(4, (0,)), b=(4, (0,)), c=(3, (0,)))
    assert set(withheld) == {0}, "two equal ones beside an older one: withheld from all three"


def test_39_claims_of_what_does_not_exist() -> None:
    odd = (("gone", (0,)), ("t", (0, 0, 7, -1)))
    members = [subscribed("a", topics=("t",), owned=odd, generation=3)]
    done = plan_round(SIMPLE, members, {"t": 2}, generation=4)
    assert done.assignments["a"].gained == (("t", (1,)),), "only existing partitions are claimed"
    handed_out = cooperative(2, a=(3, (0, 0, 7, -1)))
    assert handed_out == ({"a": {0, 1}}, {}), "and cooperative-sticky assigns the same"


def test_40_a_claim_outside_the_subscription() -> None:
    members = [
        subscribed("a", topics=("u",), owned=(("t", (0,)),), generation=3),
        subscribed("b", topics=("t",), generation=3),
    ]
    done = plan_round(SIMPLE, members, {"t": 1, "u": 1}, generation=4)
    assert done.assignments["a"].revoked == (("t", (0,)),), "the claim is revoked"
    assert done.assignments["b"].gained == (), "and goes to no member in that round"
    w = world("holdfast-simple", partitions={"a": 4, "b": 2})
    w.subscribe(0, ("b",))  # what it has of a is claimed no more: revoked before it joins
    w.run(w.now_ms + 8_000)
    assert {topic for topic, _ in running(w, 0)} <= {"b"}, "unsubscribed partitions stop"
    assert sum(loads(w)) == 6, "others process it"


def test_41_unreadable_user_data() -> None:
    broken = Subscription(version=3, topics=("t",), user_data=b"\xff\x00junk", generation=-1)
    members = (
        JoinedMember(member_id="a", metadata=encode_subscription(broken)),
        JoinedMember(member_id="b", metadata=b"\x00"),
    )
    ready = LeaderRound(members=members, partitions={"t": 2}, generation=1)
    assignors: tuple[Assignor, ...] = (
        DesignAssignor(SIMPLE),
        STICKY,
        EagerAssignor("sticky"),
        EagerAssignor("range"),
    )
    for assignor in assignors:
        plan = assignor.lead(ready)
        whole = assignor.read(plan["a"]).assigned == {("t", 0), ("t", 1)}
        assert whole, f"{assignor.name}: unreadable user data is no claim, the group lives"
        nothing = assignor.read(plan["b"]).assigned == frozenset()
        assert nothing, f"{assignor.name}: an unreadable subscription gets nothing"


def test_42_a_member_with_an_empty_subscription() -> None:
    members = [
        subscribed("a", topics=()),
        subscribed("b", topics=("t",)),
    ]
    done = plan_round(DEFERRED, members, {"t": 2}, generation=1)
    assert done.assignments["a"].gained == (), "it gets nothing"
    assert done.assignments["b"].gained == (("t", (0, 1)),), "the other one everything"
    w = world()
    w.subscriptions[3] = ()
    w.start(3)
    w.run(w.now_ms + 6_000)
    assert loads(w) == [0, 2, 2, 2], "in a group it disturbs no member"


def test_43_subscriptions_v0_to_v3_together() -> None:
    sticky = encode_sticky_user_data(StickyUserData(partitions=(("t", (0,)),), generation=7))
    newer = (
        subscriber("v1", 1, version=1),  # no generation: honoured, as nobody else claims it
        subscriber("v2", 2, version=2, generation=7),
        subscriber("v3", 2, 3, version=3, generation=8),  # newer than v2's claim
    )
    own, withheld = handed((subscriber("v0", version=0), *newer), 4)
    assert own == {"v0": {0}, "v1": {1}, "v2": set(), "v3": {3}}, "each is read as it is meant"
    assert withheld == {2: "v2"}, "v3 has one too many: v2 gets 2, which it had, and not 3"
    eager = EagerAssignor("sticky")
    given = (subscriber("v0", version=0, user_data=sticky), *newer)
    plan = eager.lead(LeaderRound(members=given, partitions={"t": 4}, generation=9))
    assert ("t", 0) in eager.read(plan["v0"]).assigned, "v0 claims by its user data"
    total = sum(len(eager.read(data).assigned) for data in plan.values())
    assert total == 4, "and all four partitions are assigned"


def test_44_eager_and_cooperative_members_together() -> None:
    eager = (STICKY, EagerAssignor("range"))
    w = world("cooperative-sticky", supported=lambda slot: eager if slot == 2 else (STICKY,))
    led_rounds = tape(w).led_rounds
    steady = running(w, 0) | running(w, 1)
    w.start(3)
    until(w, lambda: len(led_rounds) == 1)
    claim = {m.name[:5] for m in led_rounds[0].members if m.claims}
    assert claim == {"m0000", "m0001"}, "the eager member claims nothing"
    assert runs(w, steady), "cooperative members keep processing"
    assert not running(w, 2), "only the eager one has stopped everything"
    ends_well(w)


def test_45_a_generation_from_the_far_future() -> None:
    for lie in (10**9, 6, 5):
        members = [
            subscribed("liar", topics=("t",), owned=(("t", (0,)),), generation=lie),
            subscribed("m", topics=("t",), owned=(("t", (0,)),), generation=4),
        ]
        done = plan_round(SIMPLE, members, {"t": 2}, generation=5)
        assert done.assignments["m"].kept == (("t", (0,)),), "the liar's claim costs no member"
        assert not done.again, "and starts no round"
        assert done.assignments["liar"].gained == (("t", (1,)),), "it gets partitions like others"
        own, withheld = cooperative(2, liar=(lie + 4, (0,)), m=(4, (0,)))
        assert withheld == {}, "under cooperative-sticky nothing is withheld for it either"
        assert own == {"liar": {1}, "m": {0}}, "and the result is the same"
    own, withheld = cooperative(2, liar=(8, (0,)), m=(4, (0, 1)))
    assert own == {"liar": {0}, "m": {1}}, "the last round's generation can be true"


# Topics that change


def test_47_a_topic_is_deleted_while_its_partition_waits() -> None:
    w = world(partitions={"a": 3, "b": 1}, n=4)
    slot = next(p.slot for p in w.living() if p.running == {("b", 0)})
    w.crash(slot)
    w.run(w.now_ms + FOUND_MS)
    assert all(p.member.data.rejoin_at_ms for p in w.living()), (
        "everybody waits for topic b's member"
    )
    w.resize("b", 0)
    until(w, lambda: not any(p.member.data.rejoin_at_ms for p in w.living()), 3_000)
    rounds = w.rounds
    w.run(w.now_ms + 2 * DELAY_MS)
    assert w.rounds == rounds, "the deadline is dropped with the topic"
    ends_well(w)


def test_49_the_subscription_changes_while_revoking() -> None:
    w = world("holdfast-simple", 2, partitions={"a": 4, "b": 4})
    w.start(2)
    handing = MemberState.REVOKING
    until(w, lambda: any(p.member.state is handing for p in w.living()))
    slot = next(p.slot for p in w.living() if p.member.state is handing)
    w.subscribe(slot, ("b",))
    w.run(w.now_ms + 10_000)
    assert {topic for topic, _ in running(w, slot)} == {"b"}, (
        "it keeps only what it still subscribes to"
    )
    assert sum(loads(w)) == 8, "and everything is processed"


def test_50_a_pattern_begins_to_match_a_new_topic() -> None:
    w = world()
    lost = running(w, 2)
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    w.resize("new", 2)
    for slot in (0, 1):
        w.subscribe(slot, ("a", "new"))
    until(w, lambda: runs(w, [("new", 0), ("new", 1)]), 4_000)
    assert not any(w.ownership_log.runner(r) for r in lost), "even while others continue to wait"
    ends_well(w)


@dataclass(frozen=True)
class KnowsRacks(DesignAssignor):
    """Design I whose leader knows in which racks the replicas are; the list may change."""

    racks: list[tuple[str, ...]] = field(default_factory=list)

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Plan with the racks of this moment."""
        return DesignAssignor.lead(self, replace(leader_round, racks={"a": self.racks}))


def racked(racks: list[tuple[str, ...]]) -> InstrumentedWorld:
    """A world whose members stand in racks and whose leader knows where the replicas are."""
    design = KnowsRacks(SIMPLE, racks=racks)
    w = world("holdfast-simple", settle=False, supported=lambda slot: (design,))
    for p in w.living():
        p.member.data.options = replace(p.member.data.options, rack=RACKS[p.slot])
    return w


def _refresh(w: World) -> int:
    """Send every member its metadata again; return the number of rounds."""
    for p in w.living():
        p.notify(MetadataChanged((("a", 6),)))
    rounds = w.rounds
    w.run(w.now_ms + 20_000)
    return rounds


def test_51_a_broker_s_rack_is_unknown_for_a_moment() -> None:
    known = [(RACKS[(p + 1) % 3],) for p in range(6)]  # not where they would be dealt anyway
    racks: list[tuple[str, ...]] = [*known]
    w = racked(racks)
    led_rounds = tape(w).led_rounds
    w.run(6_000)
    before: list[set[Resource]] = [running(w, slot) for slot in range(3)]
    near = [sorted(p for _, p in own) for own in before]
    assert near == [[2, 5], [0, 3], [1, 4]], "every member has partitions of its rack"
    kept = tape(w)
    racks[:] = [() if r == ("z",) else r for r in known]  # z's broker is away
    rounds = _refresh(w)
    assert w.rounds == rounds and not kept.sent(SendJoin), "no rebalance for an unknown rack"
    w.start(3)
    w.slots[3].member.data.options = replace(w.slots[3].member.data.options, rack="z")
    w.run(w.now_ms + 10_000)  # a round for another reason, while it is still unknown
    moved = sum(len(m.revoked) for t in led_rounds for m in t.members)
    assert moved == 1, "a round for another reason moves one partition, not more"
    stayed = sum(len(running(w, slot) & before[slot]) for slot in range(3))
    assert stayed == 5, "all others stay where they were"
    racks[:] = known
    rounds = _refresh(w)
    assert w.rounds == rounds, "nor when the rack is known again"
    assert sum(loads(w)) == 6, "everything is processed"
