"""Assignments of members whose messages list changes: Kafka Connect workers, and Workers.

**Rules.** After a round a worker has what it had, less what was revoked, plus what was assigned.
A connector's task is listed under its connector.

References: KIP-415; :mod:`holdfast.core.wire.layouts.container`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from holdfast.core.kinds.kind import ACTIVE, Given, GivenList
from holdfast.core.model.memoized import memoized
from holdfast.core.model.partitions import Resource, TopicPartitions
from holdfast.core.wire.layouts.connect import decode_connect_assignment, decode_connect_metadata
from holdfast.core.wire.layouts.container import (
    MOST_FAILED,
    decode_member_assignment,
    decode_member_subscription,
)


def lists_of(role: int, things: Iterable[Resource]) -> list[GivenList]:
    """Return one list for each topic, connector, kind or subtopology, all sorted."""
    return [
        (role, name, [number for _, number in of_name])
        for name, of_name in groupby(sorted(things), key=itemgetter(0))
    ]


def given_by_increments(
    had: TopicPartitions | None,
    revoked: TopicPartitions | None,
    assigned: TopicPartitions | None,
    *,
    whole: bool = False,
    delay_ms: int = 0,
    config_offset: int = -1,
) -> Given:
    """Return a member's assignment after a round whose messages list changes.

    Parameters
    ----------
    whole : bool
        True: the member has ``assigned`` alone, and the assignment does not say what was revoked.
    """
    before, gone, new = (
        {(name, number) for name, numbers in listed or () for number in numbers}
        for listed in (had, revoked, assigned)
    )
    return Given(
        owned=lists_of(ACTIVE, new if whole else before - gone | new),
        n_claimed=len(before),
        n_revoked=-1 if whole else len(gone),
        delay_ms=delay_ms,
        config_offset=config_offset,
    )


_assignment = memoized(1024, largest=4096)(decode_connect_assignment)
"""Read an assignment; a worker's subscription repeats that of the round before, byte for byte."""


def read_connect(metadata: bytes, assignment: bytes) -> Given:
    """Return the connectors and tasks of a Connect worker; task -1 is the connector itself."""
    allocation = decode_connect_metadata(metadata).allocation
    had = _assignment(allocation).assignment if allocation else None
    now = _assignment(assignment)
    return given_by_increments(
        had=had,
        revoked=now.revoked,
        assigned=now.assignment,
        whole=now.version == 0,  # the eager protocol, before KIP-415: an assignment is everything
        delay_ms=now.delay_ms,
        config_offset=max(now.config_offset, 0),
    )


def read_worker(subscription: bytes, assignment: bytes) -> Given:
    """Return the resources of a :class:`holdfast.Worker`, and what has failed there."""
    said = decode_member_subscription(subscription)
    now = decode_member_assignment(assignment)
    given = given_by_increments(
        had=said.owned, revoked=now.revoked, assigned=now.assigned, delay_ms=now.delay_ms
    )
    # A message may list more than a worker is allowed to report: the rest is not read.
    failed = [(one.topic, one.error, one.partitions[:MOST_FAILED]) for one in said.failed]
    return replace(given, failed=failed[:MOST_FAILED])
