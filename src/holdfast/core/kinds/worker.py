"""The assignment of a :class:`holdfast.Worker`, and what has failed there, by kind.

**Rules.** After a round a worker has what it had, less what was revoked, plus what was assigned. No
more failed resources are read than a worker may report.

References: :mod:`holdfast.core.wire.layouts.container`.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.kinds.given_lists import given_by_increments
from holdfast.core.kinds.kind import Given
from holdfast.core.wire.layouts.container import (
    MOST_FAILED,
    decode_member_assignment,
    decode_member_subscription,
)


def read_worker(subscription: bytes, assignment: bytes) -> Given:
    """Return the resources of a worker."""
    said = decode_member_subscription(subscription)
    now = decode_member_assignment(assignment)
    given = given_by_increments(
        had=said.owned, revoked=now.revoked, assigned=now.assigned, delay_ms=now.delay_ms
    )
    failed = [(one.topic, one.error, one.partitions[:MOST_FAILED]) for one in said.failed]
    return replace(given, failed=failed[:MOST_FAILED])
