"""Exhaustive search of small worlds: no interleaving breaks a rule, and planted bugs are found."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from tests.proof.walk import KINDS, Bound, Found, Search
from tests.sim.bugs import (
    Bent,
    ask_only_who_owns_it,
    give_the_number_of_a_term_again,
    never_stop,
    rejoin_before_revocation,
)
from tests.suites import further

from holdfast.core.machine.coordinator import coordinator
from holdfast.core.machine.leader import ring, state_reconstruction
from holdfast.core.machine.member import responses
from holdfast.core.machine.member.member_data import NEVER_MS
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.states import MemberState
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.wire.layouts.state_shard import HASH_BITS

POLICY = Policy(delay_ms=20_000, interval_ms=10_000)
POLICIES = ("eager", "holdfast-simple", "deferred", "incremental")
PAIR = Bound(members=2, joins=0, partitions=3)
SLOW = pytest.mark.slow
GROWING = Bound(members=1, joins=1, partitions=2)


def search(policy: str, bound: Bound, assignors=None) -> Found:
    found = Search(assignors or assignors_for(policy, POLICY), bound).run()
    print(policy, bound.lost or "nothing lost", found.line())
    assert found.complete
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_every_interleaving_with_two_messages_lost_or_late(policy):
    found = search(policy, replace(PAIR, lost="join,sync", leaves=0))
    assert found.violations == []
    assert len(found.outcomes) >= 3


@pytest.mark.parametrize(
    "policy",
    [
        *further(["eager", "deferred"]),
        *(pytest.param(p, marks=SLOW) for p in ("holdfast-simple", "incremental")),
    ],
)
def test_every_interleaving_of_three_members_and_a_joiner(policy):
    found = search(policy, Bound(partitions=3))
    assert found.violations == []
    assert len(found.outcomes) >= 11


@SLOW
@pytest.mark.parametrize("lost", ["", *KINDS])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_interleaving_of_the_default_bound(policy, lost):
    assert search(policy, Bound(lost=lost)).violations == []


@pytest.mark.parametrize(
    ("policy", "lost"),
    further(
        product(["deferred", "incremental"], ["sync,leave", "join,heartbeat", "sync,heartbeat"])
    ),
)
def test_every_interleaving_of_static_members_with_two_messages_lost_or_late(policy, lost):
    """An answer that comes when the session has ended finds a member that has lost it."""
    bound = Bound(members=2, joins=0, partitions=2, lost=lost, static=True)
    assert search(policy, bound).violations == []


@pytest.mark.parametrize("policy", further(["failback", "damped", "deferred", "incremental"]))
def test_every_interleaving_of_members_with_locations_and_a_joiner_at_the_first_one(policy):
    """While the first one runs, neither has a location; when it has ended, the joiner is back."""
    bound = Bound(members=2, joins=1, partitions=3, locations=True)
    assert search(policy, bound).violations == []


@SLOW
@pytest.mark.parametrize("lost", ["", *KINDS])
@pytest.mark.parametrize("policy", ["deferred", "incremental", "failback"])
def test_every_interleaving_of_the_default_bound_with_locations(policy, lost):
    assert search(policy, Bound(lost=lost, locations=True)).violations == []


QUICK = {
    # Not damped: a joiner's age is in the leader state, so there are four times as many states.
    *((policy, "") for policy in POLICIES if policy != "damped"),
    ("eager", "sync"),
    ("holdfast-simple", "join"),
    ("deferred", "commit"),
    ("incremental", "leave"),
}


@pytest.mark.parametrize(
    ("policy", "lost"),
    [
        pytest.param(policy, lost, marks=() if (policy, lost) in QUICK else SLOW)
        for policy in POLICIES
        for lost in ("", *KINDS)
    ],
)
def test_every_interleaving_of_two_members_reduced_and_in_full(policy, lost):
    agree(policy, replace(PAIR, lost=lost))


@pytest.mark.parametrize(
    ("policy", "lost"), [("deferred", ""), pytest.param("holdfast-simple", "join", marks=SLOW)]
)
def test_every_interleaving_of_a_member_and_a_joiner_reduced_and_in_full(policy, lost):
    agree(policy, replace(GROWING, lost=lost))


def agree(policy: str, bound: Bound) -> None:
    """Check that the reduced search finds the settled ends of the full one, and neither a fault."""
    reduced, full = both(policy, bound)
    assert reduced.outcomes == full.outcomes
    assert len(full.outcomes) >= 4
    assert reduced.violations == full.violations == []
    assert reduced.states < full.states


def both(policy: str, bound: Bound, assignors=None) -> tuple[Found, Found]:
    reduced = search(policy, bound, assignors)
    return reduced, search(policy, replace(bound, reduce=False), assignors)


def rules(policy: str, bound: Bound, assignors=None) -> set[str]:
    """Return the rules that a planted bug breaks, equal in a reduced and in a full search."""
    reduced, full = ({v.rule for v in f.violations} for f in both(policy, bound, assignors))
    assert reduced == full
    return reduced


def bent(bend) -> tuple[Bent]:
    return (Bent(assignors_for("holdfast-simple", POLICY)[0].policy, bend=bend),)


def test_no_bug_no_finding():
    assert rules("deferred", PAIR) == set()


@pytest.mark.every
def test_double_assignment_is_found():
    def everybody_everything(assignments, leader_round):
        everything = (("t", tuple(range(leader_round.partitions["t"]))),)
        for name, v in assignments.items():
            assignments[name] = replace(v, assigned=everything, revoked=None)

    assert {"S1", "S3"} <= rules("holdfast-simple", PAIR, bent(everybody_everything))


@pytest.mark.every
def test_rounds_that_never_end_are_found():
    def another_round(assignments, leader_round):
        for name, v in assignments.items():
            if len(assignments) > 1:
                assignments[name] = replace(v, revoked=v.revoked or ())

    bound = replace(GROWING, crashes=0, leaves=0, generations=9)
    assert rules("holdfast-simple", bound, bent(another_round)) == {"L4"}


@pytest.mark.every
def test_a_rejoin_before_revocation_is_found(monkeypatch):
    rejoin_before_revocation(monkeypatch)
    assert "S1" in rules("holdfast-simple", replace(GROWING, crashes=0, leaves=0))


@pytest.mark.parametrize("policy", further(["eager", "deferred", "holdfast-simple"]))
@pytest.mark.parametrize("bug", [ask_only_who_owns_it, give_the_number_of_a_term_again])
def test_a_commit_of_what_was_handed_out_before_a_loss_is_found(monkeypatch, policy, bug):
    """The member is removed for lost heartbeats, joins again, and owns the resource again."""
    bound = replace(GROWING, lost="heartbeat", crashes=0, leaves=0)
    assert rules(policy, bound) == set()
    bug(monkeypatch)
    assert rules(policy, bound) == {"S16"}


@pytest.mark.every
def test_a_zombie_that_does_not_stop_is_found(monkeypatch):
    never_stop(monkeypatch)
    assert "L1" in rules("holdfast-simple", PAIR)


@pytest.mark.every
def test_a_join_that_is_not_sent_again_is_found(monkeypatch):
    def gives_up(member):
        member.state, member.retry_at_ms = MemberState.UNJOINED, NEVER_MS
        return ()

    monkeypatch.setattr(responses, "retry", gives_up)
    assert rules("deferred", replace(PAIR, lost="join")) == {"L1"}


@pytest.mark.every
def test_a_coordinator_that_forgets_a_pending_sync_is_found(monkeypatch):
    respond_to_syncs = coordinator.respond_to_syncs

    def one_only(group, members):
        return respond_to_syncs(group, members)[:1]

    monkeypatch.setattr(coordinator, "respond_to_syncs", one_only)
    assert "L1" in rules("holdfast-simple", replace(GROWING, crashes=0, leaves=0))


@pytest.mark.parametrize("policy", further(["deferred", "incremental"]))
def test_any_members_lose_their_shard_and_the_others_know_everything(policy):
    found = search(policy, Bound(partitions=3, joins=0, leaves=0, forgets=3))
    assert found.violations == []
    assert found.settled > 100


@SLOW
@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_any_two_lose_their_shard_while_one_crashes_one_leaves_and_one_joins(policy):
    assert search(policy, Bound(partitions=3, forgets=2)).violations == []


@pytest.mark.parametrize(("forgets", "rules"), further([(1, {"D2"}), (0, set())]))
def test_a_state_of_one_copy_is_found_where_a_shard_is_lost(monkeypatch, forgets, rules):
    """A member crashes and its one holder forgets: no member knows the previous owner."""
    monkeypatch.setattr(ring, "COPIES", 1)
    found = search("deferred", Bound(partitions=3, joins=0, leaves=0, forgets=forgets))
    assert {v.rule for v in found.violations} == rules


@pytest.mark.parametrize(("forgets", "rules"), further([(1, {"D2", "L5"}), (0, set())]))
def test_a_list_of_what_waits_with_one_carrier_is_found(monkeypatch, forgets, rules):
    """The leader forgets what waits: the others have a digest, and a deadline begins again."""
    carriers = ring._carriers
    monkeypatch.setattr(
        ring, "_carriers", lambda members, leader, count: carriers(members, leader, 1)
    )
    found = search("deferred", Bound(members=2, partitions=2, leaves=0, forgets=forgets))
    assert {v.rule for v in found.violations} == rules


ONE_EACH = Bound(members=2, joins=0, partitions=1, subscribes=1)
"""One partition, two members: one of them owns nothing, and may be the one that subscribes."""


@pytest.mark.parametrize(
    "policy", further(["deferred", "incremental", "failback", "holdfast-simple"])
)
def test_a_topic_that_a_member_subscribes_to_later_is_no_departed_members(policy):
    """Its owner crashes or leaves at any moment, before and after the other one subscribes."""
    found = search(policy, ONE_EACH)
    assert found.violations == []
    assert {r for outcome in found.outcomes for run in outcome for r in run} >= {("u", 0), ("u", 1)}


@SLOW
@pytest.mark.parametrize("policy", ["deferred", "incremental", "failback"])
def test_one_subscribes_later_while_one_crashes_one_leaves_and_one_joins(policy):
    assert search(policy, replace(ONE_EACH, joins=1)).violations == []


@pytest.mark.every
def test_a_topic_that_has_the_name_of_another_one_is_found(monkeypatch):
    """Names of no bits: what is new counts as the departed owner's, and waits."""
    for module in (ring, state_reconstruction):
        monkeypatch.setattr(module, "hash_of_topic", lambda topic: "0" * HASH_BITS)
    assert {v.rule for v in search("deferred", ONE_EACH).violations} >= {"D3"}
