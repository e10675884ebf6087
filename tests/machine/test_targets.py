"""Targets over several kinds: isolated from each other, or balanced by weight."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies
from tests.assignors.groups import snapshot
from tests.machine.subscribed import round_of, subscribed
from tests.suites import dear

from holdfast.core.assignors.registry import assign
from holdfast.core.machine.actions import LedRound
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.designs import DesignAssignor, compute, led_round
from holdfast.core.machine.leader.leader import plan_round
from holdfast.core.machine.leader.targets import isolated_target, weighted_target
from holdfast.core.machine.policy import Policy
from holdfast.core.model.columns import NO_OWNER
from holdfast.core.model.constants import Design
from holdfast.core.model.group import Group
from holdfast.core.model.partitions import grouped, resources_of
from holdfast.core.wire.layouts.container import MemberSubscription, encode_member_subscription


def sticky(group: Group):
    return assign(group, "cooperative-sticky").target


def group(partitions: dict, **members) -> Group:
    """``a={"x": [0]}`` claims partition 0 of x; everybody subscribes to everything."""
    return Group.from_dict(snapshot(partitions, [*members], owned=members, generation=3))


def table(group: Group, target) -> dict:
    """member -> kind -> how many."""
    found = {m: Counter() for m in group.member_ids}
    for tp, owner in enumerate(target.tolist()):
        if owner != NO_OWNER:
            found[group.member_ids[owner]][group.topics.names[group.topics.topic_of[tp]]] += 1
    return found


def test_each_kind_is_spread_by_itself_and_extras_go_to_whom_has_least():
    kinds = group({"a": 4, "b": 1, "c": 1, "d": 1}, m={}, n={}, o={})
    found = table(kinds, isolated_target(kinds, sticky))
    assert sorted(f["a"] for f in found.values()) == [1, 1, 2]
    assert sorted(sum(f.values()) for f in found.values()) == [2, 2, 3]
    together = table(kinds, sticky(kinds))
    assert sorted(sum(f.values()) for f in together.values()) == [2, 2, 3]


def test_a_change_in_one_kind_never_moves_another():
    before = {"m": {"a": [0, 1], "b": [0]}, "n": {"a": [2, 3], "b": [1]}}
    stable = group({"a": 4, "b": 2}, **before)
    held = isolated_target(stable, sticky)
    assert assign(stable, "cooperative-sticky").owner.tolist() == held.tolist()
    grown = group({"a": 9, "b": 2}, **before)
    target = isolated_target(grown, sticky)
    b = grown.topics.topic_of == 1
    assert target[b].tolist() == [0, 1]
    fewer = group({"a": 1, "b": 2}, **before)
    assert isolated_target(fewer, sticky)[1:].tolist() == [0, 1]


@given(strategies.snapshots())
def test_isolated_is_what_the_assignor_says_of_each_kind_alone(snapshot):
    whole = Group.from_dict(snapshot)
    target = isolated_target(whole, sticky)
    for topic, name in enumerate(whole.topics.names):
        mine = target[whole.topics.topic_of == topic]
        subscribers = [m for m in snapshot["members"] if name in m["topics"]]
        assert (mine == NO_OWNER).all() == (not subscribers or not len(mine))
        if subscribers and len(mine):
            members = sorted(m["id"] for m in subscribers)
            counts = Counter(whole.member_ids[i] for i in mine.tolist())
            loads = [counts[m] for m in members]
            assert sum(loads) == len(mine)
            assert max(loads) - min(loads) <= 1


@given(strategies.snapshots(), st.data())
def test_a_change_in_one_kind_never_moves_what_another_has(snapshot, data):
    names = sorted(snapshot["partitions"])
    weights = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 9)))
    held = stable(snapshot, weights)
    whole = Group.from_dict(held)
    before = dict(zip(resources(whole), isolated_target(whole, sticky, weights), strict=True))
    changed = data.draw(st.sampled_from(names))
    count = data.draw(st.integers(0, 9))
    other = Group.from_dict({**held, "partitions": {**held["partitions"], changed: count}})
    after = dict(zip(resources(other), isolated_target(other, sticky, weights), strict=True))
    assert {r: o for r, o in after.items() if r[0] != changed} == {
        r: o for r, o in before.items() if r[0] != changed
    }


def resources(whole: Group) -> list[tuple[str, int]]:
    counts = zip(whole.topics.names, whole.topics.n_partitions.tolist(), strict=True)
    return [(name, p) for name, n in counts for p in range(n)]


def stable(snapshot: dict, weights: dict[str, int]) -> dict:
    """The same group when every member claims what it is to have."""
    whole = Group.from_dict(snapshot)
    own = {m: [] for m in whole.member_ids}
    for (topic, p), owner in zip(
        resources(whole), isolated_target(whole, sticky, weights).tolist(), strict=True
    ):
        if owner != NO_OWNER:
            own[whole.member_ids[owner]].append([topic, p])
    members = [
        {"id": m["id"], "topics": m["topics"], "owned": own[m["id"]], "generation": 7}
        for m in snapshot["members"]
    ]
    return {"partitions": snapshot["partitions"], "members": members}


def test_the_extra_one_of_a_heavy_kind_goes_to_whom_has_least_by_weight():
    kinds = group({"heavy": 3, "light": 7}, m={}, n={})
    found = table(kinds, isolated_target(kinds, sticky, {"heavy": 4}))
    assert {m: tuple(f[k] for k in ("heavy", "light")) for m, f in found.items()} == {
        "m": (2, 3),
        "n": (1, 4),
    }


def test_weights_balance_heavy_kinds_against_light_ones():
    kinds = group({"heavy": 2, "light": 8}, m={}, n={})
    weights = {"heavy": 4}
    found = table(kinds, weighted_target(kinds, weights))
    loads = [4 * f["heavy"] + f["light"] for f in found.values()]
    assert loads == [8, 8]
    odd = group({"heavy": 1, "light": 4}, m={}, n={})
    found = table(odd, weighted_target(odd, weights))
    assert sorted(tuple(f.items()) for f in found.values()) == [
        (("heavy", 1),),
        (("light", 4),),
    ]


def test_a_claim_moves_only_where_that_levels():
    held = group({"heavy": 2, "light": 3}, m={"heavy": [0, 1]}, n={"light": [0, 1, 2]})
    # 10 against 3: a heavy one goes over, then a light one comes back: 6 against 7
    target = weighted_target(held, {"heavy": 5})
    assert np.count_nonzero(target[:2] == 1) == 1
    assert np.count_nonzero(target[2:] == 0) == 1
    even = group({"heavy": 1, "light": 5}, m={"heavy": [0]}, n={"light": [0, 1, 2, 3, 4]})
    assert weighted_target(even, {"heavy": 5}).tolist() == [0, 1, 1, 1, 1, 1]


@given(
    strategies.snapshots(),
    st.dictionaries(st.sampled_from(["t0", "t1", "t2", "t3"]), st.integers(1, 9)),
)
def test_weighted_targets_are_whole_allowed_and_level(snapshot, weights):
    whole = Group.from_dict(snapshot)
    target = weighted_target(whole, weights)
    topics = {m["id"]: set(m["topics"]) for m in snapshot["members"]}
    loads = dict.fromkeys(whole.member_ids, 0)
    owned = []
    for tp, owner in enumerate(target.tolist()):
        name = whole.topics.names[whole.topics.topic_of[tp]]
        able = [m for m in whole.member_ids if name in topics[m]]
        assert (owner == NO_OWNER) == (not able)
        if able:
            member = whole.member_ids[owner]
            assert member in able
            loads[member] += weights.get(name, 1)
            owned.append((member, name))
    for member, name in owned:  # no single move lowers the larger of two loads
        weight = weights.get(name, 1)
        for other, others in topics.items():
            if name in others and other != member:
                assert max(loads[member] - weight, loads[other] + weight) >= loads[member]


class WorkersByHand:
    """Workers of one kind of group, their leader's rounds in bytes, its last round included."""

    def __init__(self, policy: Policy, kinds: dict[str, int]):
        self.design = DesignAssignor(replace(policy, isolate=True))
        self.kinds, self.generation = kinds, 1
        self.members: dict[str, MemberSubscription] = {}
        self.led: LedRound | None = None
        self.moved: set[tuple[str, int]] = set()

    def join(self, *names: str) -> None:
        for name in names:
            self.members[name] = MemberSubscription(topics=())
        self.settle()

    def leave(self, name: str) -> None:
        del self.members[name]
        self.settle()

    def change(self, kind: str, count: int) -> None:
        self.kinds = {**self.kinds, kind: count}
        self.settle()

    def settle(self) -> None:
        """Play rounds until none is asked for; revocations are in ``moved``."""
        self.moved = set()
        while self.round():
            pass

    def round(self) -> bool:
        self.generation += 1
        topics = tuple(sorted(self.kinds))
        joined = tuple(
            JoinedMember(
                member_id=name,
                metadata=encode_member_subscription(replace(said, topics=topics)),
            )
            for name, said in self.members.items()
        )
        request = round_of(self.design.name, joined, self.kinds, self.generation, led=self.led)
        done = compute((self.design,), request)
        assert done.failure is None
        self.led = led_round(request, done)
        plan = dict(done.assignments)
        again = False
        for name, data in plan.items():
            told = self.design.read(data)
            said = self.members[name]
            owned = (resources_of(said.owned) - told.revoked) | told.assigned
            again |= told.again
            self.moved |= told.revoked
            self.members[name] = replace(
                said,
                owned=grouped(sorted(owned)),
                generation=self.generation,
                already_revoked=grouped(sorted(told.revoked)),
                leader_state=told.leader_state,
            )
        return again

    def loads(self) -> dict[str, int]:
        return {name: len(resources_of(s.owned)) for name, s in self.members.items()}

    def each_kind_is_even(self) -> bool:
        of = {
            name: Counter(k for k, _ in resources_of(s.owned)) for name, s in self.members.items()
        }
        counts = [[own[kind] for own in of.values()] for kind in self.kinds]
        whole = all(sum(c) == n for c, n in zip(counts, self.kinds.values(), strict=True))
        return whole and all(max(c) - min(c) <= 1 for c in counts)


AT_ONCE = {design: Policy(design=design, delay_ms=0, interval_ms=0) for design in Design}


@pytest.mark.parametrize("design", list(Design))
def test_a_worker_that_joins_gets_its_share_of_small_kinds(design):
    play = WorkersByHand(AT_ONCE[design], {f"c{i}": 1 for i in range(8)})
    play.join("a")
    play.join("b")
    assert play.loads() == {"a": 4, "b": 4}
    assert len(play.moved) == 4
    play = WorkersByHand(AT_ONCE[design], {f"c{i}": 2 for i in range(6)})
    play.join("a", "b", "c")
    play.join("d")
    assert play.loads() == {"a": 3, "b": 3, "c": 3, "d": 3}
    assert len(play.moved) == 3
    play.leave("a")
    assert play.loads() == {"b": 4, "c": 4, "d": 4}
    assert play.each_kind_is_even()


def test_a_change_in_one_kind_leaves_the_others_alone_even_if_totals_differ():
    play = WorkersByHand(AT_ONCE[Design.SIMPLE], {f"c{i}": 1 for i in range(8)})
    play.join("a", "b")
    for kind, _ in resources_of(play.members["b"].owned):
        play.change(kind, 0)
        assert play.moved <= {(kind, 0)}
    assert play.loads() == {"a": 4, "b": 0}
    play.join("c")  # who comes or goes makes totals even again
    assert sorted(play.loads().values()) == [1, 1, 2]


@given(st.data())
@dear
def test_kinds_are_isolated_and_totals_are_even_whoever_comes_and_goes(data):
    names = [f"k{i}" for i in range(data.draw(st.integers(1, 7)))]
    sizes = st.integers(0, 7)
    policy = AT_ONCE[data.draw(st.sampled_from(list(Design)))]
    play = WorkersByHand(policy, {name: data.draw(sizes) for name in names})
    workers = [f"w{i}" for i in range(5)]
    play.join(workers[0])
    for _ in range(data.draw(st.integers(1, 6))):
        event = data.draw(st.sampled_from(["join", "leave", "change"]))
        others = [name for name in workers if name not in play.members]
        if event == "join" and others:
            play.join(others[0])
        elif event == "leave" and len(play.members) > 1:
            play.leave(data.draw(st.sampled_from(sorted(play.members))))
        else:
            kind = data.draw(st.sampled_from(names))
            play.change(kind, data.draw(sizes))
            assert {k for k, _ in play.moved} <= {kind}
            assert play.each_kind_is_even()
            continue
        assert play.each_kind_is_even()
        assert max(play.loads().values()) - min(play.loads().values()) <= 1


def test_nothing_to_own():
    empty = group({}, m={})
    assert weighted_target(empty, {}).tolist() == []
    assert isolated_target(empty, sticky).tolist() == []
    alone = Group.from_dict({"partitions": {"t": 2}, "members": []})
    assert weighted_target(alone, {}).tolist() == [NO_OWNER, NO_OWNER]


@pytest.mark.parametrize("how", [{"isolate": True}, {"weights": {"connector": 9}}])
def test_a_leader_plans_with_them(how):
    policy = replace(Policy(design=Design.SIMPLE), **how)
    kinds = {"connector": 2, "task": 6}
    members = [
        subscribed(
            m,
            topics=("connector", "task"),
            owned=(("connector", (i,)), ("task", (3 * i, 3 * i + 1, 3 * i + 2))),
            generation=3,
        )
        for i, m in enumerate("ab")
    ]
    done = plan_round(policy, members, kinds, generation=4)
    assert not any(s.revoked or s.gained for s in done.assignments.values())
    done = plan_round(policy, members[:1], kinds, generation=5)  # b has gone
    assert done.assignments["a"].revoked == ()
    assert done.assignments["a"].gained == (("connector", (1,)), ("task", (3, 4, 5)))
    joined = [*members, subscribed("c", topics=("connector", "task"))]
    done = plan_round(policy, joined, kinds, generation=6)
    taken = {kind for s in done.assignments.values() for kind, _ in s.revoked}
    # by themselves, two connectors are even over three members; heavy ones weigh more than tasks
    assert ("connector" in taken) == bool(policy.weights)
