"""Which public name of each client has which counterpart in ``holdfast.Consumer``.

**Rules.** The names come from the classes that are installed. A name that ours has too needs no
row here; :data:`COUNTERPARTS` has those of another name, :data:`NOT_HERE` the reason why there is
none. A name that is in none of these fails the page's test.
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
"""Name of the original -> the original, name of ours, ours."""

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
"""What does the same in ours under another name."""

NOT_HERE = {
    "assign": "a member owns what its group gives it; the drop-ins have it",
    "unassign": "as `assign`",
    "incremental_assign": "as `assign`",
    "incremental_unassign": "as `assign`",
    "cluster_id": "ask an admin client",
    "set_sasl_credentials": "`holdfast.oauth.token.provider` renews credentials",
    "store_offsets": "what is handed out is processed at the next `poll`; else `commit(offsets)`",
    "highwater": "`end_offsets` asks the broker",
    "last_stable_offset": "`end_offsets` with `isolation.level=read_committed`",
    "last_poll_timestamp": "`metrics`",
    "bootstrap": "`subscribe` connects",
    "bootstrap_connected": "`subscribe` raises where no broker answers",
}
"""What ours does not have, and what to do instead."""


def public(kind: type) -> list[str]:
    """Public methods and properties of a class, sorted; constants are none."""
    return sorted(name for name in dir(kind) if not name.startswith("_") and not name.isupper())


def missing() -> list[str]:
    """What a drop-in lacks of its original, and names without a counterpart or a reason."""
    known = {*COUNTERPARTS, *NOT_HERE}
    found = []
    for original, (theirs, _, ours) in CLIENTS.items():
        found += [f"{original}.{n}: not in ours" for n in public(theirs) if not hasattr(ours, n)]
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
    """One table a client."""
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
