"""What a worker of :class:`holdfast.Worker` was given: resources, by kind.

**Rules.** What a worker has after a round is what it had, less what it was asked back, plus what it
was given.

References: :mod:`holdfast.core.wire.layouts.container`.
"""

from __future__ import annotations

from holdfast.core.kinds.given_lists import given_by_increments
from holdfast.core.kinds.kind import Given
from holdfast.core.wire.layouts.container import (
    decode_member_assignment,
    decode_member_subscription,
)


def read_worker(subscription: bytes, assignment: bytes) -> Given:
    """Resources of a worker."""
    had = decode_member_subscription(subscription).owned
    now = decode_member_assignment(assignment)
    return given_by_increments(
        had=had, revoked=now.revoked, assigned=now.assigned, delay_ms=now.delay_ms
    )
