"""Every decoder of messages and, where there is one, its encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.core.wire.layouts.consumer_protocol import (
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.core.wire.layouts.container import (
    decode_member_assignment,
    decode_member_subscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.other_protocols import (
    decode_connect_assignment,
    decode_connect_metadata,
    decode_design_assignment,
    decode_design_subscription,
    decode_streams_assignment,
    decode_streams_subscription,
)
from holdfast.core.wire.layouts.state_shard import decode_shard, encode_shard


@dataclass(frozen=True, slots=True)
class Codec:
    """A decoder and, where there is one, its encoder."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None = None


CODECS = {
    "subscription": Codec(decode_subscription, encode_subscription),
    "assignment": Codec(decode_assignment, encode_assignment),
    "sticky": Codec(decode_sticky_user_data, encode_sticky_user_data),
    "cooperative": Codec(decode_cooperative_user_data, encode_cooperative_user_data),
    "design-subscription": Codec(decode_design_subscription),
    "design-assignment": Codec(decode_design_assignment),
    "claim": Codec(decode_member_subscription, encode_member_subscription),
    "verdict": Codec(decode_member_assignment, encode_member_assignment),
    "state-shard": Codec(decode_shard, encode_shard),
    "connect-metadata": Codec(decode_connect_metadata),
    "connect-assignment": Codec(decode_connect_assignment),
    "streams-subscription": Codec(decode_streams_subscription),
    "streams-assignment": Codec(decode_streams_assignment),
}
