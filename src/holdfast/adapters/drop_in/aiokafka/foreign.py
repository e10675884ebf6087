"""Assignors written for another client's class, offered by a member of ours.

**Rules.** They run as that client runs them: eager, on the decoded messages of that client. What
they raise costs the round and not the member; the round begins anew.

**Strategy.** The client's classes encode and decode; :class:`ForeignAssignor` has the two halves of
:class:`~holdfast.machine.leader.designs.Assignor`.

References: KIP-726 ("assignors are user-customisable").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import AdapterError
from holdfast.machine.leader.designs import EAGER, LeaderRound
from holdfast.machine.leader.embedded import Instruction, MemberView, RebalanceMode


class ForeignAssignor:
    """One eager assignor of another client.

    Parameters
    ----------
    name : str
        Kafka's protocol name.
    subscribe : callable
        Takes topics, gives the bytes of a subscription.
    read : callable
        Takes the bytes of an assignment, tells the assignor, gives its (topic, partition) pairs.
    lead : callable
        Takes the members' subscriptions by member id and the partition counts, gives each member's
        assignment.
    """

    def __init__(
        self,
        name: str,
        *,
        subscribe: Callable[[frozenset[str]], bytes],
        read: Callable[[bytes], frozenset[tuple[str, int]]],
        lead: Callable[[Mapping[str, bytes], Mapping[str, int]], Mapping[str, bytes]],
    ):
        self.name = name
        self.modes: frozenset[RebalanceMode] = EAGER
        self._subscribe = subscribe
        self._read = read
        self._lead = lead

    def subscribe(self, view: MemberView) -> bytes:
        """See :class:`~holdfast.machine.leader.embedded.Embedded`."""
        return self._subscribe(frozenset(view.topics))

    def read(self, assignment: bytes) -> Instruction:
        """See :class:`~holdfast.machine.leader.embedded.Embedded`."""
        return Instruction(assigned=self._read(assignment))

    def lead(self, turn: LeaderRound) -> dict[str, bytes]:
        """See :class:`~holdfast.machine.leader.designs.Assignor`."""
        said = {member.member_id: member.metadata for member in turn.members}
        return dict(self._lead(said, turn.partitions))

    def stay(self, turn: LeaderRound) -> dict[str, bytes]:
        """Give up this round: an eager member claims nothing that it could keep."""
        raise AdapterError(f"assignor {self.name}: the round begins anew")


def pairs(assignment: Any) -> frozenset[tuple[str, int]]:
    """The (topic, partition) pairs of a client's assignment."""
    return frozenset((tp.topic, tp.partition) for tp in assignment.partitions())
