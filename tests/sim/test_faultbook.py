"""The fault scenarios, each by its number; what other areas play is named at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.machine.rounds import Play

from holdfast.errors import ConfigError, WireError
from holdfast.machine.designs import Designed, Turn, assignors_for, read_claimant
from holdfast.machine.events import JoinedMember
from holdfast.machine.leader import Claimant, plan_round
from holdfast.machine.policy import Policy
from holdfast.sim.faultbook import TITLES
from holdfast.sim.soak import QUICK, Faults
from holdfast.sim.world import World, WorldOptions
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.container import Verdict, encode_verdict
from holdfast.wire.incremental import Design

COSTS = replace(QUICK, slow_members=0)
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=15_000)
SIMPLE = Policy(design=Design.SIMPLE)


def world(name: str = "deferred", n: int = 3, *, partitions: int = 6, settle=True, **more) -> World:
    policy = more.pop("policy", DEFERRED)
    offered = assignors_for(name, policy)
    w = World(
        WorldOptions(
            assignors=lambda slot: offered,
            partitions={"a": partitions},
            costs=more.pop("costs", COSTS),
            delay_ms=policy.delay_ms if name in ("deferred", "incremental") else 0,
            trace=True,
            **more,
        ),
        seed=1,
    )
    for slot in range(n):
        w.start(slot)
    if settle:
        w.run(6_000)
    return w


def loads(w: World) -> list[int]:
    return sorted(len(p.running) for p in w.living())


def ends_well(w: World, after_ms: int = 60_000) -> World:
    w.run(w.now_ms + after_ms)
    assert w.ledger.violations == []
    assert sum(loads(w)) == len(w.resources())
    assert max(loads(w)) - min(loads(w)) <= 1
    return w


def s01():
    assert loads(ends_well(world(n=1))) == [6]


def s02():
    w = world(n=2, settle=False)
    assert loads(ends_well(w)) == [3, 3]
    assert w.rounds <= 2


def s03():
    w = world("simple", 2)
    w.start(2)
    w.run(w.now_ms + 1_050)
    w.start(3)
    ends_well(w)


def s04():
    w = world("simple", 2)
    w.start(2)
    w.run(w.now_ms + 1_400)
    w.start(3)
    ends_well(w)


def s05():
    w = world("simple")
    w.stop(2)
    ends_well(w)


def s06():
    w = world("simple")
    w.crash(2)
    ends_well(w)


def s07():
    play = Play.of(DEFERRED, {"T": 2}, A="T0", B="T1", C="")
    play.leave("C")
    assert play.round().delay_ms == 0


def s08():
    w = world()
    for slot in range(3):
        w.stop(slot)
    w.run(w.now_ms + 3_000)
    w.start(0)
    w.run(w.now_ms + 3_000)
    assert loads(w) == [6]
    assert w.ledger.violations == []


def s09():
    w = world()
    w.crash(2)
    w.run(w.now_ms + 500)
    w.start(2)
    ends_well(w)
    assert w.ledger.moved_to_third == 0


def s10():
    w = world(static=True)
    before = set(w.slots[2].running)
    w.crash(2)
    w.run(w.now_ms + 8_000)
    w.start(2)
    ends_well(w)
    assert w.slots[2].running == before


def s11():
    w = world(static=True)
    first = w.slots[2]
    w.start(2)
    ends_well(w)
    assert "FENCED" in first.failed
    assert not first.alive


def s12():
    w = world()
    for slot in range(3):
        w.stop(slot)
        w.run(w.now_ms + 3_000)
        w.start(slot)
        w.run(w.now_ms + 6_000)
    ends_well(w)
    assert w.ledger.moved == 0


def s13():
    w = world()
    for slot in range(3):
        w.stop(slot)
        w.run(w.now_ms + 20_000)
        w.start(slot)
        w.run(w.now_ms + 6_000)
    ends_well(w)


def s14():
    w = world()
    steady = w.slots[0]
    before = set(steady.running)
    for _ in range(4):
        w.crash(2)
        w.run(w.now_ms + 2_000)
        w.start(2)
        w.run(w.now_ms + 2_000)
        assert steady.running >= before
    ends_well(w)


def s15():
    w = world(n=4, partitions=8)
    w.crash(2)
    w.crash(3)
    assert loads(ends_well(w)) == [4, 4]


def s16():
    policy = Policy(design=Design.INCREMENTAL, delay_ms=15_000, batch=1, interval_ms=500)
    w = world("incremental", 2, partitions=8, policy=policy)
    for slot in (2, 3, 4):
        w.start(slot)
    assert loads(ends_well(w, 120_000)) == [1, 1, 2, 2, 2]


def s17():
    w = world("simple")
    w.start(3)
    while not any(" leads" in line for line in w.trace[-3:]):
        w.run(w.now_ms + 1)
    w.crash(0)
    ends_well(w)


def s18():
    w = world("simple")
    w.start(3)
    rounds = w.rounds
    while w.rounds == rounds:
        w.run(w.now_ms + 1)
    w.crash(0)
    ends_well(w)


def s19():
    w = world(n=4, partitions=8)
    w.crash(3)
    w.run(w.now_ms + 9_000)
    w.crash(0)
    ends_well(w)


def s20():
    w = world(n=2)
    w.crash(1)
    w.run(w.now_ms + 8_000)
    w.start(2)
    w.stop(0)
    ends_well(w)


def s21():
    play = Play.of(DEFERRED, {"T": 4}, A="T0,T3", B="T1", C="T2")
    play.join("D")
    assert play.round().again
    play.members = dict(reversed(play.members.items()))  # whoever leads, the set is the same
    done = play.round()
    assert done.delay_ms == 0
    assert play.owned("D") == "T3"


def s22():
    policy = Policy(design=Design.INCREMENTAL, delay_ms=15_000, batch=1, interval_ms=2_000)
    w = world("incremental", 3, partitions=9, policy=policy)
    w.start(3)
    w.run(w.now_ms + 2_500)
    w.stop(0)
    ends_well(w, 120_000)


def s23():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    old = play.members["A"]
    play.leave("D")
    play.round()
    play.now_ms += 5_000
    play.members["A"] = replace(old, memory_age_ms=0)  # an older copy beside newer ones
    assert play.round().delay_ms > 0


def s25():
    w = world()
    w.resize("a", 9)
    ends_well(w)


def s26():
    w = world()
    for p in w.living():
        p.plan_fails = 2
    w.start(3)
    ends_well(w)


def s27():
    w = world("simple")
    w.stall(0, 9_000)
    ends_well(w)


def s28():
    w = world(n=2)
    w.start(2)
    w.run(w.now_ms + 3)
    w.split(2, 800)
    ends_well(w)


def s33():
    w = world("simple")
    w.start(3)
    w.run(w.now_ms + 800)
    w.restart_coordinator(1_500)
    ends_well(w)


def s34():
    w = world("simple")
    w.start(3)
    w.run(w.now_ms + 3_000)
    w.restart_coordinator(500, lose=1)
    ends_well(w)


def s36():
    w = world("simple", settle=False)
    w.network.rates.duplicate = 0.5
    w.run(9_000)
    ends_well(w)


def claimed(**generations: int) -> dict[str, str]:
    members = [
        Claimant(member_id=m, topics=("t",), owned=(("t", (0,)),), generation=g)
        for m, g in generations.items()
    ]
    done = plan_round(SIMPLE, members, {"t": 1}, generation=99)
    return {
        m: "keeps" if s.kept else "revoked" if s.revoked else "nothing"
        for m, s in done.shares.items()
    }


def s37():
    assert claimed(a=4, b=4) == {"a": "revoked", "b": "revoked"}


def s38():
    assert claimed(a=4, b=4, c=5) == {"a": "revoked", "b": "revoked", "c": "keeps"}


def s39():
    odd = (("gone", (0,)), ("t", (0, 0, 7, -1)))
    members = [Claimant(member_id="a", topics=("t",), owned=odd, generation=3)]
    done = plan_round(SIMPLE, members, {"t": 2}, generation=4)
    assert done.shares["a"].gained == (("t", (1,)),)


def s40():
    members = [
        Claimant(member_id="a", topics=("u",), owned=(("t", (0,)),), generation=3),
        Claimant(member_id="b", topics=("t",), generation=3),
    ]
    done = plan_round(SIMPLE, members, {"t": 1, "u": 1}, generation=4)
    assert done.shares["a"].revoked == (("t", (0,)),)
    assert done.shares["b"].gained == ()


def s41():
    broken = Subscription(version=3, topics=("t",), user_data=b"\xff\x00junk", generation=-1)
    design = Designed(SIMPLE)
    members = (
        JoinedMember(member_id="a", metadata=encode_subscription(broken)),
        JoinedMember(member_id="b", metadata=b"\x00"),
    )
    plan = design.lead(Turn(members=members, partitions={"t": 2}, generation=1))
    assert design.read(plan["a"]).assigned == {("t", 0), ("t", 1)}
    assert design.read(plan["b"]).assigned == frozenset()


def s42():
    members = [Claimant(member_id="a", topics=()), Claimant(member_id="b", topics=("t",))]
    done = plan_round(DEFERRED, members, {"t": 2}, generation=1)
    assert done.shares["a"].gained == ()
    assert done.shares["b"].gained == (("t", (0, 1)),)


def s43():
    for version in range(4):
        value = Subscription(version=version, topics=("t",), user_data=None, generation=-1)
        claim = read_claimant("m", None, encode_subscription(value, version))
        assert claim.topics == ("t",)


def s45():
    members = [
        Claimant(member_id="liar", topics=("t",), owned=(("t", (0,)),), generation=10**9),
        Claimant(member_id="m", topics=("t",), owned=(("t", (0, 1)),), generation=4),
    ]
    done = plan_round(SIMPLE, members, {"t": 2}, generation=5)
    assert done.shares["liar"].kept == (("t", (0,)),)
    assert done.shares["m"].kept == (("t", (1,)),)


def s46():
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


def s47():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    play.partitions["T"] = 3
    assert play.round().delay_ms == 0


def s48():
    play = Play.of(SIMPLE, {"T": 4}, A="T0,T1", B="T2,T3")
    play.partitions["T"] = 2
    done = play.round()
    assert all(p < 2 for s in done.shares.values() for _, ps in s.kept + s.gained for p in ps)


def s50():
    play = Play.of(DEFERRED, {"T": 2}, A="T0", B="T1")
    play.partitions["new"] = 1
    play.members = {n: replace(m, topics=("T", "new")) for n, m in play.members.items()}
    assert play.round().delay_ms == 0
    assert "new0" in ",".join(play.all_owned().values())


def s57():
    w = world("simple")
    w.stall(2, 15_000)
    ends_well(w)
    assert any("m0002.0 drops" in line for line in w.trace)


def s59():
    w = world()
    w.crash(2)
    w.run(w.now_ms + 9_000)
    rounds = w.rounds
    w.run(w.now_ms + 30_000)
    assert w.rounds == rounds + 1
    ends_well(w)


def s60():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    assert play.round().delay_ms == 15_000
    for passed in range(1, 15):
        play.now_ms += 1_000
        assert play.round().delay_ms == 15_000 - 1_000 * passed
    play.now_ms += 1_000
    assert play.round().delay_ms == 0


def s61():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    play.now_ms += 10_000
    play.leave("C")
    assert play.round().delay_ms == 5_000
    play.now_ms += 5_000
    assert play.round().delay_ms == 10_000
    owned = ",".join(play.all_owned().values())
    assert "T3" in owned
    assert "T2" not in owned


def s62():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    play.now_ms += 15_000
    play.join("D2")
    play.settle()
    owned = ",".join(play.all_owned().values())
    assert owned.count("T3") == 1


def s63():
    play = Play.of(replace(DEFERRED, delay_ms=0), {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    assert play.round().delay_ms == 0
    assert "T3" in ",".join(play.all_owned().values())


def s64():
    with pytest.raises(WireError):
        encode_verdict(Verdict(delay_ms=2**31))
    with pytest.raises(WireError):
        encode_verdict(Verdict(delay_ms=-1))
    with pytest.raises(ConfigError):
        Policy(delay_ms=2**31)


PLAYED = {
    int(name[1:]): value
    for name, value in list(globals().items())
    if name[:1] == "s" and name[1:].isdigit()
}

MEMBER = "tests/machine/test_member.py"
ELSEWHERE = {
    24: ("tests/wire", "version"),
    29: (MEMBER, "scenario_29"),
    30: (MEMBER, "each_way_to_lose"),
    31: (MEMBER, "each_way_to_lose"),
    32: (MEMBER, "scenario_32"),
    35: (MEMBER, "scenario_35_36"),
    44: ("tests/kips/test_kip726.py", "eager_and_cooperative_members_together"),
    49: (MEMBER, "scenario_49"),
    51: ("tests/machine/test_member.py", "skip_assignment_sends_none_but_watches_metadata"),
    52: (MEMBER, "scenario_52"),
    53: (MEMBER, "scenario_53"),
    54: (MEMBER, "scenario_54"),
    55: (MEMBER, "scenario_55"),
    56: (MEMBER, "scenario_56"),
    58: (MEMBER, "scenario_58"),
    65: ("tests/assign", "lag"),
    66: ("tests/assign", "lag"),
    67: ("tests/assign", "lag"),
    68: ("tests/assign", "lag"),
    69: ("tests/pipeline", "tombstone"),
    70: ("tests/pipeline", "generation"),
    71: ("tests/wire", "unknown"),
    72: ("tests/pipeline", "migrat"),
}


def test_every_number_is_played():
    assert sorted(TITLES) == list(range(1, 73))
    assert sorted({*PLAYED, *ELSEWHERE}) == list(range(1, 73))


@pytest.mark.parametrize("number", sorted(PLAYED), ids=lambda n: f"{n:02d}-{TITLES[n][:40]}")
def test_scenario(number):
    PLAYED[number]()


@pytest.mark.parametrize("number", sorted(ELSEWHERE))
def test_the_test_of_another_area_exists(number):
    place, word = ELSEWHERE[number]
    root = Path(__file__).parents[2] / place
    files = [root] if root.is_file() else sorted(root.rglob("test_*.py"))
    assert any(word in file.read_text(encoding="utf-8") for file in files), (place, word)


def test_random_faults_are_the_same_world_twice():
    a, b = (Faults(5, None, None, trace=True).play().trace for _ in range(2))
    assert a == b
