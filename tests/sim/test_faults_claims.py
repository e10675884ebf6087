"""Fault scenarios 37 to 51: what members claim, and what becomes of topics."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from tests.machine.rounds import Play
from tests.sim.faultplay import (
    DEFERRED,
    DELAY_MS,
    FOUND_MS,
    SIMPLE,
    ends_well,
    loads,
    running,
    runs,
    tape,
    until,
    world,
)

from holdfast.machine.actions import ComputeAssignment, SendJoin
from holdfast.machine.designs import (
    CooperativeSticky,
    Designed,
    Plain,
    Turn,
    compute,
)
from holdfast.machine.events import JoinedMember, MetadataChanged
from holdfast.machine.leader import Claimant, plan_round
from holdfast.machine.leader_turn import turn
from holdfast.machine.states import MemberState
from holdfast.sim.seen import see
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.sticky_user_data import StickyUserData, encode_sticky_user_data

STICKY = CooperativeSticky()


def claimed(**generations: int) -> dict[str, str]:
    """What becomes of the claims that these members make to one partition."""
    members = [
        Claimant(member_id=m, topics=("t",), owned=(("t", (0,)),), generation=g)
        for m, g in generations.items()
    ]
    found = []
    for order in permutations(members):
        done = plan_round(SIMPLE, order, {"t": 1}, generation=99)
        found.append(
            {
                m: "keeps" if s.kept else "revoked" if s.revoked else "nothing"
                for m, s in done.shares.items()
            }
        )
        assert not any(s.gained for s in done.shares.values())
    assert all(each == found[0] for each in found)
    return found[0]


def cooperative(partitions: int, **claims: tuple[int, tuple[int, ...]]) -> tuple[dict, dict]:
    """Kafka's own protocol: what each of these is handed, and what is withheld for whom."""
    members = tuple(
        JoinedMember(
            member_id=name,
            metadata=encode_subscription(
                Subscription(
                    version=3,
                    topics=("t",),
                    user_data=None,
                    owned=(("t", numbers),),
                    generation=generation,
                )
            ),
        )
        for name, (generation, numbers) in claims.items()
    )
    return handed(members, partitions)


def handed(members: tuple[JoinedMember, ...], partitions: int) -> tuple[dict, dict]:
    """The assignment of topic t as members read it, and what its leader withholds for whom."""
    ready = Turn(members=members, partitions={"t": partitions}, generation=9)
    own = {m: {p for _, p in STICKY.read(data).assigned} for m, data in STICKY.lead(ready).items()}
    triples = [(m.member_id, m.instance_id, m.metadata) for m in members]
    result = turn("cooperative-sticky", triples, {"t": partitions})
    ids = result.group.member_ids
    return own, {int(tp): ids[result.target[tp]] for tp in result.withheld_tp}


def test_37_two_members_claim_a_partition_same_generation():
    assert claimed(a=4, b=4) == {"a": "revoked", "b": "revoked"}
    own, _ = cooperative(1, a=(4, (0,)), b=(4, (0,)))
    assert own == {"a": set(), "b": set()}
    assert claimed(a=4, b=4, c=3) == {"a": "revoked", "b": "revoked", "c": "revoked"}


def test_38_three_claim_it_two_alike_one_newer():
    assert claimed(a=4, b=4, c=5) == {"a": "revoked", "b": "revoked", "c": "keeps"}
    own, withheld = cooperative(1, a=(4, (0,)), b=(4, (0,)), c=(5, (0,)))
    assert withheld == {0: "c"}  # the newest wins, once nobody else claims it any more
    assert own == {"a": set(), "b": set(), "c": set()}


def test_39_claims_of_what_does_not_exist():
    odd = (("gone", (0,)), ("t", (0, 0, 7, -1)))
    members = [Claimant(member_id="a", topics=("t",), owned=odd, generation=3)]
    done = plan_round(SIMPLE, members, {"t": 2}, generation=4)
    assert done.shares["a"].gained == (("t", (1,)),)
    assert cooperative(2, a=(3, (0, 0, 7, -1))) == ({"a": {0, 1}}, {})


def test_40_a_claim_outside_the_subscription():
    members = [
        Claimant(member_id="a", topics=("u",), owned=(("t", (0,)),), generation=3),
        Claimant(member_id="b", topics=("t",), generation=3),
    ]
    done = plan_round(SIMPLE, members, {"t": 1, "u": 1}, generation=4)
    assert done.shares["a"].revoked == (("t", (0,)),)
    assert done.shares["b"].gained == ()
    w = world("simple", partitions={"a": 4, "b": 2})
    w.subscribe(0, ("b",))  # what it has of a is claimed no more: given up before it joins
    w.run(w.now_ms + 8_000)
    assert {topic for topic, _ in running(w, 0)} <= {"b"}
    assert sum(loads(w)) == 6
    assert w.ledger.violations == []


def test_41_unreadable_user_data():
    broken = Subscription(version=3, topics=("t",), user_data=b"\xff\x00junk", generation=-1)
    members = (
        JoinedMember(member_id="a", metadata=encode_subscription(broken)),
        JoinedMember(member_id="b", metadata=b"\x00"),
    )
    ready = Turn(members=members, partitions={"t": 2}, generation=1)
    for assignor in (Designed(SIMPLE), STICKY, Plain("sticky"), Plain("range")):
        plan = assignor.lead(ready)
        assert assignor.read(plan["a"]).assigned == {("t", 0), ("t", 1)}
        assert assignor.read(plan["b"]).assigned == frozenset()


def test_42_a_member_with_an_empty_subscription():
    members = [Claimant(member_id="a", topics=()), Claimant(member_id="b", topics=("t",))]
    done = plan_round(DEFERRED, members, {"t": 2}, generation=1)
    assert done.shares["a"].gained == ()
    assert done.shares["b"].gained == (("t", (0, 1)),)
    w = world()
    w.subscriptions[3] = ()
    w.start(3)
    w.run(w.now_ms + 6_000)
    assert loads(w) == [0, 2, 2, 2]
    assert w.ledger.violations == []


def test_43_subscriptions_v0_to_v3_together():
    sticky = encode_sticky_user_data(StickyUserData(partitions=(("t", (0,)),), generation=7))

    def member(version: int, *owned: int, generation: int = -1, user_data=None) -> JoinedMember:
        value = Subscription(
            version=version,
            topics=("t",),
            user_data=user_data,
            owned=(("t", owned),) if owned else (),
            generation=generation,
        )
        return JoinedMember(member_id=f"v{version}", metadata=encode_subscription(value, version))

    members = (
        member(0),
        member(1, 1),  # no generation: honoured, as nobody else claims it
        member(2, 2, generation=7),
        member(3, 2, 3, generation=8),  # newer than v2's claim
    )
    own, withheld = handed(members, 4)
    assert own == {"v0": {0}, "v1": {1}, "v2": set(), "v3": set()}
    assert withheld[2] == "v3"
    eager = Plain("sticky")
    given = (member(0, user_data=sticky), *members[1:])
    plan = eager.lead(Turn(members=given, partitions={"t": 4}, generation=9))
    assert ("t", 0) in eager.read(plan["v0"]).assigned
    assert sum(len(eager.read(data).assigned) for data in plan.values()) == 4


def test_44_eager_and_cooperative_members_together():
    eager = (STICKY, Plain("range"))
    w = world("cooperative-sticky", offers=lambda slot: eager if slot == 2 else (STICKY,))
    turns = tape(w).turns
    steady = running(w, 0) | running(w, 1)
    w.start(3)
    until(w, lambda: len(turns) == 1)
    assert {s.name[:5] for s in turns[0].members if s.claims} == {"m0000", "m0001"}
    assert runs(w, steady)  # only the eager one stopped everything
    assert not running(w, 2)
    ends_well(w)


def test_45_a_generation_from_the_far_future():
    members = [
        Claimant(member_id="liar", topics=("t",), owned=(("t", (0,)),), generation=10**9),
        Claimant(member_id="m", topics=("t",), owned=(("t", (0, 1)),), generation=4),
    ]
    done = plan_round(SIMPLE, members, {"t": 2}, generation=5)
    assert done.shares["liar"].kept == (("t", (0,)),)
    assert done.shares["m"].kept == (("t", (1,)),)
    own, withheld = cooperative(3, liar=(10**9, (0,)), m=(4, (0, 1)))
    assert withheld == {0: "liar"}
    assert own["m"] >= {1}


def test_46_a_topic_grows_during_a_delay():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    play.now_ms += 1_000
    play.partitions["T"] = 6
    assert play.round().delay_ms == 14_000
    owned = ",".join(play.all_owned().values())
    assert "T4" in owned
    assert "T5" in owned
    assert "T3" not in owned
    w = world()
    lost = running(w, 2)
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    w.resize("a", 8)
    until(w, lambda: runs(w, [("a", 6), ("a", 7)]), 3_000)
    assert not any(w.ledger.runner(r) for r in lost)
    ends_well(w)


def test_47_a_topic_is_deleted_while_its_partition_waits():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    play.partitions["T"] = 3
    assert play.round().delay_ms == 0
    w = world(partitions={"a": 3, "b": 1}, n=4)
    slot = next(p.slot for p in w.living() if p.running == {("b", 0)})
    w.crash(slot)
    w.run(w.now_ms + FOUND_MS)
    assert all(p.member.rejoin_at_ms for p in w.living())
    w.resize("b", 0)
    until(w, lambda: not any(p.member.rejoin_at_ms for p in w.living()), 3_000)
    rounds = w.rounds
    w.run(w.now_ms + 2 * DELAY_MS)
    assert w.rounds == rounds
    ends_well(w)


def test_48_a_topic_is_recreated_smaller():
    play = Play.of(SIMPLE, {"T": 4}, A="T0,T1", B="T2,T3")
    play.partitions["T"] = 2
    done = play.round()
    assert all(p < 2 for s in done.shares.values() for _, ps in s.kept + s.gained for p in ps)
    w = world("simple")
    turns = tape(w).turns
    w.resize("a", 2)
    w.start(3)
    w.run(w.now_ms + 10_000)
    assert turns[-1].partitions == {"a": 2}
    assert not running(w, 3) - {("a", 0), ("a", 1)}
    w.resize("a", 6)
    ends_well(w)


def test_49_the_subscription_changes_while_revoking():
    w = world("simple", 2, partitions={"a": 4, "b": 4})
    w.start(2)
    until(w, lambda: any(p.member.state is MemberState.HANDING_OVER for p in w.living()))
    slot = next(p.slot for p in w.living() if p.member.state is MemberState.HANDING_OVER)
    w.subscribe(slot, ("b",))
    w.run(w.now_ms + 10_000)
    assert {topic for topic, _ in running(w, slot)} == {"b"}
    assert sum(loads(w)) == 8
    assert w.ledger.violations == []


def test_50_a_pattern_begins_to_match_a_new_topic():
    play = Play.of(DEFERRED, {"T": 2}, A="T0", B="T1")
    play.partitions["new"] = 1
    play.members = {n: replace(m, topics=("T", "new")) for n, m in play.members.items()}
    assert play.round().delay_ms == 0
    assert "new0" in ",".join(play.all_owned().values())
    w = world()
    lost = running(w, 2)
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    w.resize("new", 2)
    for slot in (0, 1):
        w.subscribe(slot, ("a", "new"))
    until(w, lambda: runs(w, [("new", 0), ("new", 1)]), 4_000)
    assert not any(w.ledger.runner(r) for r in lost)  # those go on waiting
    ends_well(w)


RACKS = ("x", "y", "z")


def racked(racks: list[tuple[str, ...]]):
    """A world whose members stand in racks and whose leader knows where the replicas are."""
    w = world("simple", settle=False)
    for p in w.living():
        p.member.options = replace(p.member.options, rack=RACKS[p.slot])

    def plan(process, action: ComputeAssignment) -> None:
        done = compute(process.member.assignors, action, racks={"a": racks})
        assert done.failure is None
        turns.append(see(action, done, process.member.assignors[0]))
        w.checker.check = lambda *_, **__: None
        w._tell_planned(process, done)

    turns: list = []
    w._do[ComputeAssignment] = plan
    return w, turns


def test_51_a_broker_s_rack_is_unknown_for_a_moment():
    racks = [(RACKS[p % 3],) for p in range(6)]
    w, turns = racked(racks)
    w.run(6_000)
    assert [sorted(p for _, p in running(w, s)) for s in range(3)] == [[0, 3], [1, 4], [2, 5]]
    kept = tape(w)
    before, rounds = [running(w, s) for s in range(3)], w.rounds
    racks[:] = [() if p % 3 == 2 else r for p, r in enumerate(racks)]  # z's broker is away
    for p in w.living():
        w._tell(p, MetadataChanged((("a", 6),)))  # a metadata refresh that says so
    w.run(w.now_ms + 20_000)
    assert w.rounds == rounds  # no rebalance for it
    assert not kept.sent(SendJoin)
    w.start(3)
    w.slots[3].member.options = replace(w.slots[3].member.options, rack="z")
    w.run(w.now_ms + 10_000)  # a round for another reason, while it is still unknown
    moved = sum(len(s.revoked) for t in turns for s in t.members)
    assert moved == 1
    assert sum(len(running(w, s) & before[s]) for s in range(3)) == 5
    racks[:] = [(RACKS[p % 3],) for p in range(6)]
    rounds = w.rounds
    for p in w.living():
        w._tell(p, MetadataChanged((("a", 6),)))
    w.run(w.now_ms + 20_000)
    assert w.rounds == rounds
    assert sum(loads(w)) == 6
    assert w.ledger.violations == []
