"""The commits of its application that a member accepts (S16).

**Rules.** A batch is of the current term from the start of its resource on until the member drops
or has revoked the resource. A commit of a batch of the current term is accepted, and no commit of
an older batch, whatever has happened since. The checker takes the beginning and the end of a term
from the actions that the member returned, and never from the member's own count of terms.

**Strategy.** A world keeps the batches still in flight in an application after their resource has
ended (:class:`DeliveredBatch`), and asks the member about them as a late application does.

References: rule S16 of :data:`tests.proof.rules.checkers.RULES`; KIP-429, ``onPartitionsLost``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core.machine.member.member import Member
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import OwnershipLog


class DeliveredBatch(NamedTuple):
    """Records of one resource in flight in an application, and their term."""

    resource: Resource
    term: int


def may_commit(member: Member, batch: DeliveredBatch) -> bool:
    """Return whether a session commits a batch: its resource is owned in the same term.

    References: KIP-429, ``onPartitionsLost``; Kafka's ``CommitFailedException``.
    """
    return member.generation >= 0 and member.terms.get(batch.resource) == batch.term


def check_commits(
    ownership_log: OwnershipLog,
    now_ms: int,
    who: str,
    member: Member,
    *,
    current: Iterable[DeliveredBatch] = (),
    ended: Iterable[DeliveredBatch] = (),
) -> list[DeliveredBatch]:
    """Try batches of a running term, and of ended terms, at a member.

    Returns
    -------
    list of DeliveredBatch
        The batches of ``ended`` that the member accepts.
    """
    if member.generation >= 0:
        for batch in current:
            if not may_commit(member, batch):
                text = f"{who} owns {batch.resource} and refuses to commit it"
                ownership_log.fail("S16", now_ms, text)
    accepted = [batch for batch in ended if may_commit(member, batch)]
    for batch in accepted:
        text = f"{who} commits of {batch.resource} what it had before it gave the resource up"
        ownership_log.fail("S16", now_ms, text)
    return accepted
