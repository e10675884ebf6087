"""Incremental Cooperative Rebalancing: every event list and example of Designs I, II and III.

The document's partitions T1 to T4 are partitions 0 to 3 of topic T, written T0 to T3; its members
A to D keep their names, and one that has come back has a number behind its own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.machine.subscribed import joined, reports, subscribed
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.leader.assignor_protocol import (
    LeaderRound,
    MemberView,
    ReceivedAssignment,
)
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.leader.leader import plan_round
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.machine.policy import Policy, When
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.constants import Design
from holdfast.core.wire.layouts.container import Leaving

SIMPLE = Policy(design=Design.SIMPLE)
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=30_000)
INCREMENTAL = Policy(design=Design.INCREMENTAL, delay_ms=30_000, batch=1, interval_ms=5_000)


def four(policy: Policy) -> HandPlayedGroup:
    """A(T0), B(T1), C(T2), D(T3): the document's group of four members."""
    play = HandPlayedGroup.of(policy, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    assert play.all_owned() == {"A": "T0", "B": "T1", "C": "T2", "D": "T3"}
    return play


class TestDesignI:
    def test_leader_exits_even_a_leader_new_to_the_group_keeps_stickiness(self):
        play = four(SIMPLE)
        play.leave("A")
        play.join("0")  # leads, and has no history: all it needs is in the subscriptions
        play.settle()
        assert play.owned("0") == "T0"
        assert play.all_owned() == {"0": "T0", "B": "T1", "C": "T2", "D": "T3"}

    def test_lost_partitions_are_handled_by_assigning_everything(self):
        play = four(SIMPLE)
        play.partitions["T"] = 6
        play.round()
        assert len(",".join(play.all_owned().values()).split(",")) == 6

    def test_members_that_revoke_nothing_are_notified_at_once(self):
        play = HandPlayedGroup.of(SIMPLE, {"T": 4}, A="T0,T3", B="T1", C="T2")
        play.join("D")
        received_assignments = read_back(SIMPLE, play)
        assert all(i.again for i in received_assignments.values())
        assert [m for m, i in received_assignments.items() if i.revoked] == ["A"]

    def test_an_unchanged_assignment_is_not_sent_again(self):
        play = four(SIMPLE)
        play.leave("D")
        short = read_back(replace(SIMPLE, omit_unchanged=True), play)
        assert short["B"] == ReceivedAssignment(assigned=frozenset(), absence_revokes=False)
        assert short["A"].assigned == {("T", 3)}
        full = read_back(SIMPLE, play)
        assert full["B"].assigned == {("T", 1)}


class TestDesignII:
    def test_first_member_is_served_at_once_or_after_the_delay(self):
        now = HandPlayedGroup(DEFERRED, {"T": 4})
        now.join("A")
        assert now.round().delay_ms == 0
        assert now.owned("A") == "T0,T1,T2,T3"
        # This wait stands for group.initial.rebalance.delay.ms and has a setting of its own.
        for delay_ms, first_ms in ((30_000, 3_000), (0, 3_000), (1_000, 7_000)):
            policy = replace(DEFERRED, first_member=When.DEFERRED, delay_ms=delay_ms)
            later = HandPlayedGroup(replace(policy, first_member_delay_ms=first_ms), {"T": 4})
            later.join("A")
            assert later.round().delay_ms == first_ms
            later.now_ms += 1_000
            later.join("B")
            assert later.round().delay_ms == first_ms - 1_000
            assert later.all_owned() == {"A": "", "B": ""}
            later.now_ms += first_ms - 1_000
            later.settle()
            assert later.all_owned() == {"A": "T0,T2", "B": "T1,T3"}
            later.leave("B")
            assert later.round().delay_ms == delay_ms
        assert Policy().first_member_delay_ms == 3_000
        assert not replace(policy, first_member_delay_ms=0).waits_first

    def test_a_topic_missing_from_all_assignments_is_a_new_subscription(self):
        play = four(DEFERRED)
        play.partitions["U"] = 2
        for name in "ABCD":
            play.members[name] = reports(play.members[name], topics=("T", "U"))
        done = play.round()
        assert done.delay_ms == 0
        assert sum("U" in play.owned(name) for name in "ABCD") == 2

    def test_a_new_subscription_is_served_at_once_while_a_delay_runs(self):
        play = four(DEFERRED)
        play.leave("D")
        play.round()
        play.now_ms += 1_000
        play.partitions["U"] = 3
        for name in "ABC":
            play.members[name] = reports(play.members[name], topics=("T", "U"))
        done = play.round()
        assert done.delay_ms == 29_000
        assert all("U" in play.owned(name) for name in "ABC")
        assert not any("T3" in play.owned(name) for name in "ABC")

    def test_only_what_was_lost_is_deferred_and_additional_members_are_served_at_once(self):
        play = HandPlayedGroup(DEFERRED, {"T": 30})
        for name in "ABC":
            play.join(name, instance=name.lower())
        play.settle()
        owned = play.all_owned()
        play.leave("C")
        done = play.round()
        assert (done.delay_ms, done.again) == (30_000, False)
        assert {m: play.owned(m) for m in "AB"} == {m: owned[m] for m in "AB"}
        play.now_ms += 1_000
        for name in "DEF":
            play.join(name, instance=name.lower())
        done = play.round()
        assert (done.delay_ms, done.again) == (0, True)
        done = play.round()
        assert (done.delay_ms, done.again) == (29_000, False)
        assert {m: len(o.split(",")) for m, o in play.all_owned().items()} == dict.fromkeys(
            "ABDEF", 4
        )
        play.now_ms += 9_000
        play.join("C2", instance="c")
        done = play.round()
        assert done.delay_ms == 0
        assert set(owned["C"].split(",")) == set(play.owned("C2").split(","))
        play.settle()
        assert {len(o.split(",")) for o in play.all_owned().values()} == {5}

    def test_the_deadline_of_what_was_lost_is_kept_over_rounds_that_revoke(self):
        play = HandPlayedGroup.of(DEFERRED, {"T": 6}, A="T0,T1,T2", B="T3,T4,T5")
        play.join("C", instance="c")
        play.settle()
        lost = set(play.owned("C").split(","))
        play.leave("C")
        assert play.round().delay_ms == 30_000
        play.now_ms += 10_000
        play.join("D", instance="d")
        done = play.round()
        assert (done.delay_ms, done.again) == (0, True)
        assert play.round().delay_ms == 20_000
        assert not lost & {p for o in play.all_owned().values() for p in o.split(",")}
        play.now_ms += 20_000
        play.settle()
        assert lost < {p for o in play.all_owned().values() for p in o.split(",")}

    def test_leader_exits_old_member_leads_and_keeps_the_timeout(self):
        play = four(DEFERRED)
        play.leave("D")
        play.round()
        play.now_ms += 10_000
        play.leave("A")  # led
        done = play.round()
        assert done.delay_ms == 20_000  # D's deadline; A's is later
        play.now_ms += 20_000
        assert play.round().delay_ms == 10_000
        assert "T3" in "".join(play.all_owned().values())
        play.now_ms += 10_000
        assert play.round().delay_ms == 0
        assert "T0" in "".join(play.all_owned().values())

    def test_leader_exits_new_member_leads_and_learns_the_timeout_from_the_others(self):
        # The document lets a newcomer assume that no wait is in effect; members tell it otherwise,
        # as docs/leader-state.md says ("What the leader state survives and costs").
        play = HandPlayedGroup.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
        play.members = {
            name: replace(m, instance_id=name.lower()) for name, m in play.members.items()
        }
        play.round()
        play.leave("D")
        assert play.round().delay_ms == 30_000
        play.now_ms += 10_000
        play.join("0", instance="zero")
        assert play.round().delay_ms == 20_000

    def test_leader_exits_and_bounces_back(self):
        play = four(DEFERRED)
        play.leave("A")
        play.round()
        play.join("A2")
        assert play.round().delay_ms == 0
        assert play.owned("A2") == "T0"

    def test_a_new_leader_without_any_state_uses_the_heuristic(self):
        def claims(*more: SubscribedMember):
            owners = {"A": 0, "B": 1, "C": 2}
            return [
                *(
                    subscribed(m, topics=("T",), owned=(("T", (p,)),), generation=3)
                    for m, p in owners.items()
                ),
                *more,
            ]

        back = subscribed("D2", topics=("T",))
        done = plan_round(DEFERRED, claims(back), {"T": 4}, generation=5)
        assert done.assignments["D2"].gained == (("T", (3,)),)
        assert done.delay_ms == 0
        done = plan_round(DEFERRED, claims(), {"T": 4}, generation=5)
        assert done.delay_ms == 30_000
        done = plan_round(DEFERRED, claims(), {"T": 3, "U": 1}, generation=5)
        assert done.delay_ms == 0

    @pytest.mark.parametrize("generation", [3, 2, -1])
    def test_the_heuristic_asks_whether_a_member_should_have_had_one(self, generation):
        members = [
            *(
                subscribed(m, topics=("T",), owned=(("T", (p,)),), generation=3)
                for m, p in {"A": 0, "B": 1}.items()
            ),
            subscribed("idle", topics=("T",), generation=generation),
        ]
        done = plan_round(DEFERRED, members, {"T": 3}, generation=5)
        # In the last generation there was nothing for it: it is not the member that is missing.
        assert (done.delay_ms, done.assignments["idle"].gained) == (
            (30_000, ()) if generation == 3 else (0, (("T", (2,)),))
        )

    def test_without_state_what_was_revoked_on_request_waits_for_nobody(self):
        members = [
            subscribed(
                "A",
                topics=("T",),
                owned=(("T", (0,)),),
                generation=3,
                already_revoked=(("T", (1,)),),
            ),
            subscribed("B", topics=("T",), generation=3),  # joined in the round before
        ]
        done = plan_round(DEFERRED, members, {"T": 2}, generation=4)
        assert (done.delay_ms, done.assignments["B"].gained) == (0, (("T", (1,)),))

    def test_member_process_plans_to_rejoin_after_the_timeout(self):
        play = four(DEFERRED)
        play.leave("D")
        received_assignments = read_back(DEFERRED, play)
        assert len(received_assignments) == 3
        for received in received_assignments.values():
            assert received.delay_ms == 30_000
            assert not received.revoked
            assert not received.again

    @pytest.mark.parametrize("design", [DEFERRED, INCREMENTAL])
    def test_voluntary_leave_is_deferred_as_a_crash_or_not_as_the_leaver_says(self, design):
        """The document leaves it to a policy; here the leaver has it (``holdfast.clean.leave``)."""
        play = four(design)
        play.leave("D")
        assert play.round().delay_ms == 30_000
        play = four(design)
        play.members["D"] = reports(
            play.members["D"], leaving=Leaving.FOR_GOOD, owned=(), already_revoked=()
        )
        assert play.round().delay_ms == 0
        assert sorted(",".join(play.all_owned().values()).strip(",").split(",")) == [
            "T0",
            "T1",
            "T2",
            "T3",
        ]
        assert play.owned("D") == ""
        play.leave("D")
        assert play.round().delay_ms == 0


class TestDesignIII:
    def test_moves_go_in_batches_with_their_own_interval(self):
        play = HandPlayedGroup.of(INCREMENTAL, {"T": 6}, A="T0,T1,T2", B="T3,T4,T5")
        play.join("C")
        rounds, revoked = 0, []
        while True:
            done = play.round()
            rounds += 1
            revoked.append(sum(len(p) for s in done.assignments.values() for _, p in s.revoked))
            if done.delay_ms:
                assert done.delay_ms == 5_000
                play.now_ms += 5_000
            elif not done.again:
                break
        assert max(revoked) == 1
        assert sum(revoked) == 2
        assert rounds == 4  # 2 * ceil(m / b)
        assert sorted(len(o.split(",")) for o in play.all_owned().values()) == [2, 2, 2]

    @pytest.mark.parametrize(("group_batch", "n_batches"), [(0, 5), (10, 5), (5, 10), (1, 50)])
    def test_members_that_join_at_once_are_served_side_by_side(self, group_batch, n_batches):
        """Ten join ten with 100 partitions: each gains five, in the time that one would take."""
        policy = replace(INCREMENTAL, group_batch=group_batch)
        owned = {f"A{i}": ",".join(f"T{p}" for p in range(10 * i, 10 * i + 10)) for i in range(10)}
        play = HandPlayedGroup.of(policy, {"T": 100}, **owned)
        for i in range(10):
            play.join(f"B{i}")
        n_revoked = 0
        while True:
            done = play.round()
            gives = [sum(len(p) for s in done.assignments.values() for _, p in s.revoked)]
            n_revoked += any(gives)
            assert sum(gives) <= (group_batch or 10)
            if done.delay_ms:
                play.now_ms += done.delay_ms
            elif not done.again:
                break
        assert n_revoked == n_batches
        assert {len(o.split(",")) for o in play.all_owned().values()} == {5}

    def test_lost_partitions_go_to_the_returning_member_all_at_once(self):
        play = HandPlayedGroup.of(INCREMENTAL, {"T": 6}, A="T0,T1", B="T2,T3", C="T4,T5")
        play.leave("C")
        assert play.round().delay_ms == 30_000
        play.join("C2")
        assert play.round().delay_ms == 0
        assert play.owned("C2") == "T4,T5"

    def test_pacing_continues_under_another_leader(self):
        play = HandPlayedGroup.of(INCREMENTAL, {"T": 8}, A="T0,T1,T2,T3", B="T4,T5,T6,T7")
        play.join("C")
        play.round()
        play.round()
        play.now_ms += 2_000
        done = play.round()  # unrelated, whoever leads it
        assert done.delay_ms == 3_000
        assert not any(s.revoked for s in done.assignments.values())

    def test_no_pause_where_the_interval_is_zero(self):
        play = HandPlayedGroup.of(
            replace(INCREMENTAL, interval_ms=0), {"T": 6}, A="T0,T1,T2", B="T3,T4,T5"
        )
        play.join("C")
        assert play.settle() == 4


def read_back(policy: Policy, play: HandPlayedGroup) -> dict[str, ReceivedAssignment]:
    """What members read, bytes and all."""
    design = DesignAssignor(policy)
    leader_round = LeaderRound(
        members=joined(play.claims()), partitions=play.partitions, generation=play.generation + 1
    )
    return {name: design.read(data) for name, data in design.lead(leader_round).items()}


def test_the_formats_carry_what_the_document_lists():
    (design,) = assignors_for("deferred", DEFERRED)
    view = MemberView(
        topics=("T",),
        owned=(("T", 1),),
        previous=(),
        generation=7,
        nonce=3,
    )
    assert design.subscribe(view) != design.subscribe(replace(view, nonce=4))


@pytest.mark.parametrize("design", list(Design))
def test_leadership_only_groups_are_not_affected(design):
    play = HandPlayedGroup(Policy(design=design), {})
    play.members["A"] = subscribed("A", topics=())
    play.members["B"] = subscribed("B", topics=())
    play.received_ms = {"A": 0, "B": 0}
    done = play.round()
    assert (done.delay_ms, done.again) == (0, False)
    assert play.all_owned() == {"A": "", "B": ""}
    play.leave("A")
    assert play.round().delay_ms == 0
