"""Other members' subscriptions, for a client library that raises where bytes do not parse.

**Rules.** Bytes that the library or holdfast cannot read become those of a member without topics,
as for holdfast's own leader. All other bytes stay as they are. A member is told once while it stays
in the group.

References: KIP-429, "Consumer leader"; KAFKA-13406 (repair, do not refuse).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from holdfast.wire.layouts.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_subscription,
)

log = logging.getLogger(__name__)

NO_TOPICS = encode_subscription(Subscription(version=0, topics=(), user_data=None))
"""The subscription of a member that wants nothing."""


class ReadableSubscriptions:
    """The subscriptions of a round as the library can read them.

    Parameters
    ----------
    decode : callable
        The library's reader; it raises whatever it raises.
    """

    def __init__(self, decode: Callable[[bytes], object]):
        self._decode = decode
        self._told: Collection[str] = ()

    def of(self, members: Iterable[tuple[str, bytes]]) -> list[bytes]:
        """Bytes for each (member id, subscription), in the order given."""
        found = [(member_id, data, self._why_not(data)) for member_id, data in members]
        told = {member_id: why for member_id, _, why in found if why is not None}
        for member_id, why in told.items():
            if member_id not in self._told:
                text = "member %r gets nothing, its subscription cannot be read: %s"
                log.warning(text, member_id, why)
        self._told = told.keys()
        return [data if why is None else NO_TOPICS for _, data, why in found]

    def _why_not(self, metadata: bytes) -> Exception | None:
        try:
            decode_subscription(metadata)
            self._decode(metadata)
        except Exception as error:  # of struct, codecs, the library, and holdfast's own
            return error
        return None
