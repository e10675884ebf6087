"""The group metadata of a member, for a transactional producer.

References: KIP-447; librdkafka, ``rd_kafka_consumer_group_metadata_write``.
"""

from __future__ import annotations

import struct

from holdfast.cluster.settings import Settings
from holdfast.core.machine.events import Identity


def group_metadata(settings: Settings, identity: Identity) -> bytes:
    """Return the metadata for ``confluent_kafka.Producer.send_offsets_to_transaction``."""
    instance = settings["group.instance.id"]
    return b"".join(
        (
            b"CGMDv2:",
            struct.pack("=i", identity.generation),
            *(text.encode() + b"\0" for text in (settings["group.id"], identity.member_id)),
            b"\1" if instance is None else b"\0" + instance.encode() + b"\0",
        )
    )
