"""The assignment of a Kafka Connect worker.

**Rules.** A task is listed under its connector, and task -1 is the connector itself. After a round
a worker has what it had, less what was revoked, plus what was assigned; in version 0 its assignment
is everything.

References: KIP-415.
"""

from __future__ import annotations

from holdfast.core.kinds.given_lists import given_by_increments
from holdfast.core.kinds.kind import Given
from holdfast.core.model.memoized import memoized
from holdfast.core.wire.layouts.connect import decode_connect_assignment, decode_connect_metadata

_assignment = memoized(1024, largest=4096)(decode_connect_assignment)
"""Read an assignment; a worker's subscription repeats that of the round before, byte for byte."""


def read_connect(metadata: bytes, assignment: bytes) -> Given:
    """Return the connectors and tasks of a worker."""
    allocation = decode_connect_metadata(metadata).allocation
    had = _assignment(allocation).assignment if allocation else None
    now = _assignment(assignment)
    return given_by_increments(
        had=had,
        revoked=now.revoked,
        assigned=now.assignment,
        whole=now.version == 0,
        delay_ms=now.delay_ms,
        config_offset=max(now.config_offset, 0),
    )
