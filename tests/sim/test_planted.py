"""Planted bugs: a checker that cannot fail proves nothing, so each bug must be caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.machine.player import Player
from tests.machine.test_resolvers import DAMPED, settled_pair
from tests.proof.random_runs import random_run
from tests.sim.broken_progress import grown_by_e
from tests.sim.broken_safety import DEFERRED, SIMPLE, t, waiting
from tests.sim.history import History, override, together

from holdfast.core.machine.events import (
    CommitAnswered,
)
from holdfast.core.machine.leader import (
    delayed_rebalance,
    departed_members,
    imbalance,
    leader,
    planner,
    successors,
)
from holdfast.core.machine.leader.assignor_protocol import ReceivedAssignment
from holdfast.core.machine.leader.designs import (
    DesignAssignor,
)
from holdfast.core.machine.leader.state_reconstruction import reconstruct
from holdfast.core.machine.leader.successors import after_round, served_by
from holdfast.core.machine.member import holdings
from holdfast.core.machine.member.member import Member
from holdfast.core.model.columns import NO_OWNER
from holdfast.sim.application import Application
from holdfast.sim.clock import OwnershipLog

SEEDS = 60


class Caught(BaseException):
    """One of the rules is broken: the rest of the run tells nothing more."""


def caught(policy: str, rules: set[str], change=None, first: int = 0) -> None:
    """Some seed breaks one of the rules."""
    fail, found = OwnershipLog.fail, set()

    def noted(ownership_log: OwnershipLog, rule: str, at_ms: int, text: str) -> None:
        found.add(rule)
        if rule in rules:
            raise Caught
        fail(ownership_log, rule, at_ms, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnershipLog, "fail", noted)
        try:
            for seed in range(first, first + SEEDS):
                random_run(seed, policy=policy, assignors=change, trace=False)
        except Caught:
            return
    raise AssertionError(f"not caught in {SEEDS} runs; found {found or 'nothing'}")


def test_no_bug_no_finding():
    for policy in ("holdfast-simple", "deferred", "incremental"):
        for seed in range(3):
            assert random_run(seed, policy=policy, trace=False).violations == ()


def test_02_delay_restarted_by_each_round(monkeypatch):
    def restarted(*leader_round):
        leader_state = reconstruct(*leader_round)
        if leader_state is None:
            return None
        waiting = tuple(replace(m, delay_ms=12_000) for m in leader_state.waiting)
        return replace(leader_state, waiting=waiting)

    monkeypatch.setattr(leader, "reconstruct", restarted)
    caught("deferred", {"L5", "L6"})


def test_03_stale_claim_wins(monkeypatch):
    normalise = leader.normalise

    def oldest(group):
        claims = normalise(group)
        owner = claims.owner.copy()
        owner[claims.previous_tp] = claims.previous_member
        return replace(claims, owner=owner)

    assert both_claim(a=7, b=5).leader_round() == set()
    monkeypatch.setattr(leader, "normalise", oldest)
    monkeypatch.setattr(planner.RoundPlanner, "_target", lambda self: self.claims.owner)
    assert both_claim(a=7, b=5).leader_round() == {"S10"}


def both_claim(**generations: int) -> History:
    """Members that claim t-0, of these generations; the next round is 9."""
    history = History(SIMPLE, {"t": 1}, generation=8)
    for name, generation in generations.items():
        history.join(name, "0", generation=generation)
    return history


@pytest.mark.parametrize(("policy", "rule"), [("deferred", "D1"), ("failback", "D10")])
def test_05_timer_lost_on_leader_change(monkeypatch, policy, rule):
    def forgets(*leader_round):
        leader_state = reconstruct(*leader_round)
        return None if leader_state is None else replace(leader_state, waiting=())

    monkeypatch.setattr(leader, "reconstruct", forgets)
    caught(policy, {rule})


def test_06_absence_revokes_in_a_design(monkeypatch):
    read = DesignAssignor.read

    def mixed(self, assignment) -> ReceivedAssignment:
        return replace(read(self, assignment), absence_revokes=True)

    monkeypatch.setattr(DesignAssignor, "read", mixed)
    caught("holdfast-simple", {"S7"})


def test_07_lost_is_not_told(monkeypatch):
    lose = holdings.Holdings.lose

    def silent(self):
        actions = lose(self)
        self.queue, self.calling = (), None
        self.announced = frozenset()
        return tuple(a for a in actions if type(a).__name__ != "CallListener")

    monkeypatch.setattr(holdings.Holdings, "lose", silent)
    caught("deferred", {"S14"})


def test_08_rejoin_before_the_commit_is_answered(monkeypatch):
    commit = holdings.Holdings._commit

    def hasty(self, job, *, failed):
        actions = commit(self, job, failed=failed)
        self._finish(job)
        return actions

    at_once = Application.commit

    def slow(self, process, action):
        self.clock.at(self.clock.now_ms + 3_000, lambda _: at_once(self, process, action))

    monkeypatch.setattr(Application, "commit", slow)
    assert random_run(0, policy="holdfast-simple", trace=False).violations == ()
    monkeypatch.setattr(holdings.Holdings, "_commit", hasty)
    caught("holdfast-simple", {"S5"})


def test_13_a_returning_static_member_is_not_served(monkeypatch):
    monkeypatch.setattr(delayed_rebalance, "return_known", lambda lost, *_: ((), lost))
    caught("deferred", {"D2"})


def test_14_design_iii_moves_everything_at_once(monkeypatch):
    monkeypatch.setattr(imbalance, "_fullest_to_emptiest", lambda policy, moves, among: among)
    caught("incremental", {"III"})


def test_19_new_resources_wait_like_lost_ones(monkeypatch):
    losses = delayed_rebalance.find_departed

    def everything(policy, claims, members, leader_state, *, free, present):
        found = losses(policy, claims, members, leader_state, free=free, present=present)
        if leader_state is None or not free.any() or found:
            return found
        who = departed_members.UNKNOWN_OWNER
        tps = np.flatnonzero(free).astype(np.int32)
        return [imbalance.DepartedMember(who=who, remaining_ms=policy.delay_ms, tps=tps)]

    monkeypatch.setattr(delayed_rebalance, "find_departed", everything)
    caught("deferred", {"D3", "D4"})


def test_21_an_old_position_is_committed(monkeypatch):
    commit = holdings.Holdings._commit

    def everything(self, job, *, failed):
        self.started |= job.resources
        return commit(self, job, failed=failed)

    monkeypatch.setattr(holdings.Holdings, "_commit", everything)
    caught("cooperative-sticky", {"S15"}, first=1009)


def test_27_a_term_has_the_number_of_none(monkeypatch):
    monkeypatch.setattr(Member, "terms", {})
    caught("holdfast-simple", {"S16"})


def test_22_a_resource_claimed_twice_stays_with_one():
    kept = {"assigned": t(0), "revoked": None}
    for bend, rules in ((None, set()), (kept, {"S1", "S11", "S13"})):
        history = both_claim(a=8, b=8)
        bends = together(override("a", **bend), override("b", **bend)) if bend else None
        assert history.leader_round(bends) == rules
        already_revoked = [history.members[name].already_revoked for name in "ab"]
        assert already_revoked == [() if bend else t(0)] * 2


def late_loss(history: History) -> set[str]:
    """The rules that a round breaks in which c is gone, too."""
    history.leave("c")
    return history.leader_round()


def after_a_surge() -> set[str]:
    history = grown_by_e()
    history.leave("d")
    assert history.leader_round() == set()
    return late_loss(history)


def after_a_late_return() -> set[str]:
    history = waiting()
    history.now_ms += DEFERRED.delay_ms
    assert history.leader_round() == set()
    history.join("e")
    assert history.leader_round() == set()
    return late_loss(history)


def after_a_start() -> set[str]:
    return late_loss(grown_by_e(5_000))


def served_for_ever(recent_joiners, *wanted):
    return served_by(recent_joiners, *wanted)[0], recent_joiners


def none_vacant(*round_, **fields):
    return after_round(*round_, **{**fields, "departed": replace(fields["departed"], ran_out=0)})


@pytest.mark.parametrize(
    ("play", "module", "name", "bug"),
    [
        (after_a_surge, delayed_rebalance, "served_by", served_for_ever),
        (after_a_late_return, delayed_rebalance, "after_round", none_vacant),
        (after_a_start, successors, "start_ms", lambda policy: 0),
    ],
)
def test_28_a_member_without_a_successor_is_not_waited_for(monkeypatch, play, module, name, bug):
    assert play() == set()
    monkeypatch.setattr(module, name, bug)
    assert play() == {"D1"}


def test_26_a_departure_freezes_the_whole_group(monkeypatch):
    moves = planner.RoundPlanner._moves

    def none_beside_a_delay(self):
        if self.waits.any():
            self.target = np.where(self.owner == NO_OWNER, self.target, self.owner)
        return moves(self)

    monkeypatch.setattr(planner.RoundPlanner, "_moves", none_beside_a_delay)
    caught("deferred", {"D9"})


def test_29_damped_serves_members_that_have_just_joined(monkeypatch):
    monkeypatch.setattr(imbalance, "damped", imbalance.simple)
    caught("damped", {"D11"})


def test_30_damped_asks_again_too_early(monkeypatch):
    def joined_half_a_window_ago():
        history = settled_pair()
        history.join("c")
        assert history.leader_round() == set()
        history.now_ms += DAMPED.stabilization_ms // 2
        return history

    damped = imbalance.damped
    assert joined_half_a_window_ago().leader_round() == set()

    def hurried(imbalance):
        return damped(replace(imbalance, age_ms=2 * imbalance.age_ms))

    monkeypatch.setattr(imbalance, "damped", hurried)
    assert joined_half_a_window_ago().leader_round() == {"D11"}


def test_commit_answers_of_superseded_revocations_stay_without_effect():
    # The twin of bug 8: the real machine ignores an answer that comes after the revocation ended.
    kept = Player().member.holdings
    assert kept.commit_answered(CommitAnswered(3), 0, joins=False) == ()


@pytest.mark.parametrize("seed", [3, 14])
def test_a_run_repeats_from_its_seed(seed):
    assert random_run(seed) == random_run(seed)
