"""The counterparts of each client's public names in ``holdfast.Consumer``.

**Rules.** The names come from the installed classes. A name that holdfast has too needs no row
here; :data:`COUNTERPARTS` has counterparts under another name, :data:`NOT_HERE` the reason for a
missing one. A name without any of the three fails the page's test.
"""

from __future__ import annotations

import aiokafka
import confluent_kafka
import kafka

import holdfast
import holdfast.aiokafka
import holdfast.confluent
import holdfast.kafka

CLIENTS: dict[str, tuple[type, str, type]] = {
    "confluent_kafka.Consumer": (
        confluent_kafka.Consumer,
        "holdfast.confluent.Consumer",
        holdfast.confluent.Consumer,
    ),
    "aiokafka.AIOKafkaConsumer": (
        aiokafka.AIOKafkaConsumer,
        "holdfast.aiokafka.AIOKafkaConsumer",
        holdfast.aiokafka.AIOKafkaConsumer,
    ),
    "kafka.KafkaConsumer": (
        kafka.KafkaConsumer,
        "holdfast.kafka.KafkaConsumer",
        holdfast.kafka.KafkaConsumer,
    ),
}
"""Name of the original -> the original, holdfast's name, holdfast's class."""

COUNTERPARTS = {
    "commit_async": "commit",
    "consume": "poll",
    "consumer_group_metadata": "group_metadata",
    "get_watermark_offsets": "beginning_offsets",
    "getmany": "poll",
    "getone": "poll_one",
    "memberid": "member_id",
    "topics": "list_topics",
    "partitions_for_topic": "list_topics",
    "start": "subscribe",
}
"""Names of the original -> equivalent names of holdfast."""

NOT_HERE = {
    "assign": "a member owns what its group assigns to it; the drop-ins have it",
    "unassign": "as `assign`",
    "incremental_assign": "as `assign`",
    "incremental_unassign": "as `assign`",
    "cluster_id": "ask an admin client",
    "set_sasl_credentials": "`holdfast.oauth.token.provider` renews credentials",
    "store_offsets": "returned records count as processed at the next `poll`; else `commit(offsets)`",
    "highwater": "`end_offsets` asks the broker",
    "last_stable_offset": "`end_offsets` with `isolation.level=read_committed`",
    "last_poll_timestamp": "`metrics`",
    "bootstrap": "`subscribe` connects",
    "bootstrap_connected": "`subscribe` raises where no broker answers",
}
"""Names that holdfast lacks -> what to use instead."""


def public(kind: type) -> list[str]:
    """Return public methods and properties of a class, sorted, without constants."""
    return sorted(name for name in dir(kind) if not name.startswith("_") and not name.isupper())


def missing() -> list[str]:
    """Return names that a drop-in lacks, and names without a counterpart or a reason."""
    known = {*COUNTERPARTS, *NOT_HERE}
    found = []
    for original, (theirs, _, ours) in CLIENTS.items():
        found += [f"{original}.{n}: missing" for n in public(theirs) if not hasattr(ours, n)]
        found += [
            f"{original}.{n}: no counterpart in Consumer"
            for n in public(theirs)
            if not hasattr(holdfast.Consumer, n) and n not in known
        ]
    return found + [
        f"{n}: Consumer has it"
        for n in sorted(NOT_HERE)
        if hasattr(holdfast.Consumer, n) or n in COUNTERPARTS
    ]


def clients_part() -> str:
    """Return one table a client."""
    parts = []
    for original, (theirs, name, _) in CLIENTS.items():
        lines = [
            f"### {original}",
            "",
            f"`{name}` has all of these names.",
            "",
            "| name | `Consumer` |",
            "| --- | --- |",
            *(f"| `{n}` | {_cell(n)} |" for n in public(theirs)),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(name: str) -> str:
    counterpart = name if hasattr(holdfast.Consumer, name) else COUNTERPARTS.get(name, "")
    if hasattr(holdfast.Consumer, counterpart):
        return f"`{counterpart}`"
    return NOT_HERE[name]
