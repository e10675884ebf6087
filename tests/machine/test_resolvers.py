"""Rebalance policies: their bounds, their laws, the built-in ones, a user's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sim.history import History
from tests.suites import further

import holdfast
from holdfast.core.assignors.registry import find
from holdfast.core.machine.leader import imbalance as resolvers
from holdfast.core.machine.leader.imbalance import SETTLED_MS
from holdfast.core.machine.policy import POLICIES, KindPolicy, Policy, policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.constants import Design
from holdfast.errors import ConfigError, LawError, PlanError

DAMPED = Policy(damps=True, stabilization_ms=60_000)
WINDOW_MS = DAMPED.stabilization_ms
DESIGNS = [name for name, info in POLICIES.items() if info.design is not None]


def own(function, **fields) -> Policy:
    """The settings of a group whose leader asks this function."""
    (assignor,) = assignors_for(policy("asked", function), replace(Policy(), **fields))
    return assignor.policy


def owned(history: History) -> dict[str, int]:
    """Partitions of each member."""
    return {
        name: sum(len(numbers) for _, numbers in claim.owned)
        for name, claim in history.members.items()
    }


def play(history: History, *, leader: str | None = None) -> None:
    """Rounds until the group asks for no other one at once."""
    for _ in range(3):
        assert history.leader_round(leader=leader) == set()


def settled_pair(settings: Policy = DAMPED) -> History:
    """a and b own six each, and have been there for ten minutes."""
    history = History.of(settings, 12, a="012345", b="6789")
    history.members = {
        name: replace(claim, owned=(("t", numbers),))
        for (name, claim), numbers in zip(
            history.members.items(), (tuple(range(6)), tuple(range(6, 12))), strict=True
        )
    }
    history.now_ms += 600_000
    assert history.leader_round() == set()
    return history


# damped


def test_a_member_that_joins_and_leaves_again_moves_nothing():
    history = settled_pair()
    for name in "cde":
        history.join(name)
        play(history)
        history.now_ms += 20_000
        history.leave(name)
        play(history)
        assert owned(history) == {"a": 6, "b": 6}


def test_a_member_gets_its_share_after_it_has_stayed():
    history = settled_pair()
    history.join("c")
    play(history)
    history.now_ms += WINDOW_MS - 5_000
    play(history)
    assert owned(history) == {"a": 6, "b": 6, "c": 0}
    history.now_ms += 5_000
    play(history)
    assert owned(history) == {"a": 4, "b": 4, "c": 4}


def test_members_are_served_each_at_its_own_time():
    history = settled_pair()
    history.join("c")
    play(history)
    history.now_ms += 40_000
    history.join("d")
    play(history)
    history.now_ms += 20_000
    play(history)
    assert owned(history)["c"] >= 3
    history.now_ms += 40_000
    play(history)
    assert owned(history) == dict.fromkeys("abcd", 3)


def test_what_a_member_leaves_goes_out_at_once_to_new_members_too():
    history = settled_pair()
    history.join("c")
    play(history)
    history.now_ms += 10_000
    history.leave("a")
    play(history)
    assert owned(history) == {"b": 6, "c": 6}


def test_a_new_leader_knows_how_long_members_have_stayed():
    history = settled_pair()
    history.join("c")
    play(history, leader="a")
    history.now_ms += 30_000
    play(history, leader="c")
    assert owned(history)["c"] == 0
    history.now_ms += 30_000
    play(history, leader="b")
    assert owned(history) == {"a": 4, "b": 4, "c": 4}


def test_a_group_that_starts_is_even_at_once():
    history = History(DAMPED, {"t": 12})
    for name in "abc":
        history.join(name)
        play(history)
        history.now_ms += 5_000
    assert owned(history) == {"a": 4, "b": 4, "c": 4}


# The user's own


def asked_once(**fields) -> object:
    """The imbalance that a function is asked about: a and b own six each, d left, c joins."""
    seen = []

    def resolve(imbalance):
        seen.append(imbalance)
        return resolvers.simple(imbalance)

    history = settled_pair(own(resolve, delay_ms=30_000, **fields))
    history.join("d")
    play(history)
    history.now_ms += 7_000
    history.leave("d")
    history.join("c")
    seen.clear()
    assert history.leader_round() == set()
    return seen[0]


def test_a_function_is_given_what_waits_and_who_is_new():
    found = asked_once()
    (departed,) = found.departed
    assert (departed.remaining_ms, departed.just_now, departed.static) == (30_000, True, False)
    assert len(departed.tps) == 4
    assert dict(zip(found.group.member_ids, found.age_ms.tolist(), strict=True)) == {
        "a": SETTLED_MS,
        "b": SETTLED_MS,
        "c": 0,
    }


def test_what_would_move_depends_on_what_waits():
    found = asked_once()
    waits, dealt = found.moves([30_000]), found.moves([0])
    assert (len(waits), waits.assigns_unowned) == (0, True)  # c replaces d
    assert (len(dealt), dealt.assigns_unowned) == (0, True)
    assert waits.load.tolist() == dealt.load.tolist() == [4, 4, 0]


def test_a_function_may_end_a_wait_early():
    def half(imbalance):
        waits_ms = [d.remaining_ms // (2 if d.just_now else 1) for d in imbalance.departed]
        every = imbalance.moves(waits_ms).of_all(True)
        return holdfast.Resolution(waits_ms=waits_ms, may_move=every)

    history = settled_pair(own(half, delay_ms=30_000))
    history.leave("b")
    play(history)
    assert owned(history) == {"a": 6}
    history.now_ms += 15_000
    play(history)
    assert owned(history) == {"a": 12}


def test_the_ready_made_ones_are_functions_that_another_one_may_use():
    def one_in_25_seconds(imbalance):
        found = resolvers.simple(imbalance)
        most = 0 if imbalance.pause_ms else 1
        may_move = np.arange(len(found.may_move)) < most
        pause_ms = imbalance.pause_ms or (25_000 if len(may_move) else 0)
        return replace(found, may_move=may_move, pause_ms=pause_ms)

    history = settled_pair(own(one_in_25_seconds, delay_ms=30_000))
    history.join("c")
    for n in range(1, 5):
        play(history)
        assert owned(history)["c"] == n
        history.now_ms += 24_000
        play(history)
        assert owned(history)["c"] == n
        history.now_ms += 1_000


BROKEN = {
    "no resolution": (lambda i: None, "returned NoneType, expected a Resolution"),
    "too few waits": (
        lambda i: holdfast.Resolution(waits_ms=[], may_move=np.ones(0, bool)),
        "returned 0 waits_ms for 1 departed members",
    ),
    "longer than may be": (
        lambda i: replace(resolvers.simple(i), waits_ms=[30_001] * len(i.departed)),
        "waits 30001 ms, expected 0 to 30000 ms",
    ),
    "no integer": (
        lambda i: replace(resolvers.simple(i), waits_ms=[0.5] * len(i.departed)),
        "waits_ms: found 0.5, expected ms as an integer",
    ),
    "another mask": (
        lambda i: replace(resolvers.simple(i), may_move=np.ones(99, bool)),
        "expected bool of shape",
    ),
    "a mask of numbers": (
        lambda i: replace(resolvers.simple(i), may_move=i.moves([0] * len(i.departed)).tp),
        "returned may_move as int32",
    ),
    "a pause before": (
        lambda i: replace(resolvers.simple(i), pause_ms=-1),
        "pauses -1 ms, expected 0 to 30000 ms",
    ),
    "a pause that no memory holds": (
        lambda i: replace(resolvers.simple(i), pause_ms=30_001),
        "pauses 30001 ms, expected 0 to 30000 ms",
    ),
    "raises": (lambda i: 1 // 0, "its function raised ZeroDivisionError"),
    "ends the process": (lambda i: exit(3), "its function raised SystemExit"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_out_of_bounds_is_a_failed_plan(name):
    function, text = BROKEN[name]
    history = settled_pair(own(resolvers.simple, delay_ms=30_000))
    history.leave("b")
    history.design = replace(history.design, policy=own(function, delay_ms=30_000))
    with pytest.raises(PlanError, match=text.replace("(", r"\(")) as raised:
        history.leader_round()
    assert str(raised.value).startswith("policy asked: ")


def test_moves_that_are_held_back_without_a_time_are_a_failed_plan():
    def never(imbalance):
        found = resolvers.simple(imbalance)
        return replace(found, may_move=~found.may_move, pause_ms=0)

    history = settled_pair(own(resolvers.simple))
    history.join("c")
    history.design = replace(history.design, policy=own(never))
    with pytest.raises(PlanError, match="holds 4 moves back and pauses 0 ms: they would wait"):
        history.leader_round()


def test_a_function_changes_nothing_of_what_it_is_given():
    def greedy(imbalance):
        found = resolvers.simple(imbalance)
        imbalance.moves(found.waits_ms).taker[:] = 0
        return found

    history = settled_pair(own(resolvers.simple))
    history.join("c")
    history.design = replace(history.design, policy=own(greedy))
    with pytest.raises(PlanError, match="read-only"):
        history.leader_round()


# The laws


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("delay_ms", further([30_000, 0]))
def test_every_policy_of_a_design_keeps_the_laws(name, delay_ms):
    holdfast.check_policy_laws(name, n_groups=12, delay_ms=delay_ms, interval_ms=5_000)


@pytest.mark.parametrize("function", [resolvers.simple, resolvers.deferred, resolvers.incremental])
@pytest.mark.parametrize("failback", further([False, True]))
def test_the_ready_made_functions_keep_the_laws_as_a_users_own(function, failback):
    holdfast.check_policy_laws(policy("own", function, failback=failback), n_groups=12)


def test_the_laws_find_a_policy_that_never_moves():
    def never(imbalance):
        found = resolvers.deferred(imbalance)
        return replace(found, may_move=np.zeros_like(found.may_move), pause_ms=5_000)

    with pytest.raises(LawError, match="rounds in which nothing happens") as raised:
        holdfast.check_policy_laws(never)
    assert raised.value.law == "settles"


def test_the_laws_find_a_policy_with_a_will_of_its_own():
    turns = []

    def by_turns(imbalance):
        turns.append(1)
        waits_ms = [d.remaining_ms * (len(turns) % 2) for d in imbalance.departed]
        every = imbalance.moves(waits_ms).of_all(True)
        return holdfast.Resolution(waits_ms=waits_ms, may_move=every)

    with pytest.raises(LawError) as raised:
        holdfast.check_policy_laws(by_turns)
    assert raised.value.law == "deterministic"


def test_the_laws_find_a_policy_that_waits_too_long():
    def longer(imbalance):
        waits_ms = [d.remaining_ms + 1 for d in imbalance.departed]
        every = imbalance.moves(waits_ms).of_all(True)
        return holdfast.Resolution(waits_ms=waits_ms, may_move=every)

    with pytest.raises(LawError, match="waits 30001 ms, expected 0 to 30000 ms") as raised:
        holdfast.check_policy_laws(longer)
    assert raised.value.law == "bounded"


def test_a_policy_without_a_design_has_no_such_laws():
    with pytest.raises(ConfigError, match="policy eager: it has no design"):
        holdfast.check_policy_laws("eager")


# Making one


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a b", resolvers.simple), "expected a name of letters"),
        (("failback", resolvers.simple), "this name is holdfast's own"),
        (("range", resolvers.simple), "this name is holdfast's own"),
        (("mine", 3), "expected a function of one argument"),
        (("mine", lambda a, b: None), "expected a function of one argument"),
        (("mine", lambda *, imbalance: None), "expected a function of one argument"),
        (("mine", find), "expected a function of one argument"),
        (("mine", dict), "expected a function of one argument"),
    ],
    ids=["name", "policy", "assignor", "number", "two", "keyword", "silent", "class"],
)
def test_what_is_no_policy_is_refused(arguments, text):
    if arguments[1] is find:
        arguments = ("mine", type("Silent", (), {"__call__": None})())
    with pytest.raises(ConfigError, match=text):
        policy(*arguments)


def test_a_policy_waits_for_its_function_at_least_a_millisecond():
    with pytest.raises(ConfigError, match="timeout_ms: found 0, expected at least 1"):
        policy("mine", resolvers.simple, timeout_ms=0)


def test_a_policy_for_all_resources_takes_none_for_a_kind():
    for fields in ({"damps": True}, {"own": policy("mine", resolvers.simple)}):
        for kind in (KindPolicy(design=Design.SIMPLE), KindPolicy(delay_ms=5)):
            with pytest.raises(ConfigError, match="t: a policy for all resources takes none"):
                Policy(kinds={"t": kind}, **fields)
