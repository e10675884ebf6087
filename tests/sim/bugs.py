"""Bugs that are planted into the machines, which the checkers have to catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.proof.rules import commits
from tests.proof.rules.commits import DeliveredBatch

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import HeartbeatAnswered
from holdfast.core.machine.leader.assignor_protocol import LeaderRound
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.member import responses
from holdfast.core.machine.member.holdings import Holdings
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.member_data import NEVER_MS, MemberData
from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    decode_member_assignment,
    encode_member_assignment,
)

Bend = Callable[[dict[str, MemberAssignment], LeaderRound], None]


@dataclass(frozen=True)
class Bent(DesignAssignor):
    """A design whose leader writes something else in the end."""

    bend: Bend = lambda assignments, leader_round: None

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        plan = DesignAssignor.lead(self, leader_round)
        assignments = {m: decode_member_assignment(data) for m, data in plan.items()}
        self.bend(assignments, leader_round)
        return {m: encode_member_assignment(v) for m, v in assignments.items()}


def rejoin_before_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member claims no more what it is still running, and rejoins at once."""
    revoke = Holdings.revoke

    def too_early(self, resources, identity, deadline_ms, **how):
        actions = revoke(self, resources, identity, deadline_ms, **how)
        self.owned -= resources
        self.revocation = None
        return actions

    monkeypatch.setattr(Holdings, "revoke", too_early)


def ask_only_who_owns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of a commit asks which member owns a resource, and not since when."""

    def owns(member: Member, batch: DeliveredBatch) -> bool:
        return member.generation >= 0 and batch.resource in member.holdings.owned

    monkeypatch.setattr(commits, "may_commit", owns)


def give_the_number_of_a_term_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource that comes back has the same number as before, so its terms look the same."""
    gain = Holdings.gain

    def always_the_same(self, resources):
        actions = gain(self, resources)
        self.next_term -= bool(resources)
        return actions

    monkeypatch.setattr(Holdings, "gain", always_the_same)


def never_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's session never ends for it, and it receives no error."""
    monkeypatch.setattr(MemberData, "session_ends_ms", property(lambda member: NEVER_MS))
    on_heartbeat = responses.on_heartbeat

    def ignore_event(member, event):
        if event.error:
            event = HeartbeatAnswered(event.request, ErrorCode.NONE)
        return on_heartbeat(member, event)

    monkeypatch.setattr(responses, "on_heartbeat", ignore_event)
