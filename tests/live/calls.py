"""Every public call of every client, with the arguments with which a callback makes it.

A call with a time-out gets one that is longer than any test: a call that waits for something after
the callback is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka

import holdfast

LONG_S = 600
ENDS = {"close", "stop", "subscribe", "unsubscribe"}
"""What ends a membership, or begins one: tests of their own."""

WITHOUT_MEMBER = {
    "bootstrap": "waits for a cluster, whoever asks",
    "bootstrap_connected": "is about the client's connections",
    "cluster_id": "is about the cluster",
    "set_sasl_credentials": "needs a login",
    "listener_for": "is for librdkafka's hands",
    "start": "is refused the second time",
}
"""Names that are about no member, and why a test leaves them out."""

Calls = dict[str, Callable[[], Any]]


def public(kind: Any) -> set[str]:
    """The names of the methods of a client."""
    return {
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }


def of_consumer(client: Any) -> Calls:
    made, tp = client.consumer, client.tp(0)
    return {
        "assignment": made.assignment,
        "beginning_offsets": lambda: made.beginning_offsets([tp]),
        "commit": made.commit,
        "commit_async": made.commit_async,
        "committed": lambda: made.committed([tp]),
        "end_offsets": lambda: made.end_offsets([tp]),
        "enforce_rebalance": made.enforce_rebalance,
        "group_metadata": made.group_metadata,
        "list_topics": made.list_topics,
        "metrics": made.metrics,
        "offsets_for_times": lambda: made.offsets_for_times({tp: 1}),
        "pause": lambda: made.pause([tp]),
        "paused": made.paused,
        "poll": lambda: made.poll(LONG_S),
        "poll_one": lambda: made.poll_one(LONG_S),
        "position": lambda: made.position(tp),
        "resume": lambda: made.resume([tp]),
        "seek": lambda: made.seek(tp, 1),
        "seek_to_beginning": lambda: made.seek_to_beginning(tp),
        "seek_to_committed": lambda: made.seek_to_committed(tp),
        "seek_to_end": lambda: made.seek_to_end(tp),
        "subscription": made.subscription,
    }


def of_confluent(client: Any) -> Calls:
    made, tp, at = client.consumer, client.tp(0), client.tp(0, 1)
    return {
        "assign": lambda: made.assign([tp]),
        "assignment": made.assignment,
        "commit": lambda: made.commit(asynchronous=False),
        "committed": lambda: made.committed([tp], LONG_S),
        "consume": lambda: made.consume(10, -1),
        "consumer_group_metadata": made.consumer_group_metadata,
        "get_watermark_offsets": lambda: made.get_watermark_offsets(tp, LONG_S),
        "incremental_assign": lambda: made.incremental_assign([tp]),
        "incremental_unassign": lambda: made.incremental_unassign([tp]),
        "list_topics": lambda: made.list_topics(client.topic, LONG_S),
        "memberid": made.memberid,
        "offsets_for_times": lambda: made.offsets_for_times([at], LONG_S),
        "pause": lambda: made.pause([tp]),
        "poll": lambda: made.poll(-1),
        "position": lambda: made.position([tp]),
        "resume": lambda: made.resume([tp]),
        "seek": lambda: made.seek(at),
        "store_offsets": lambda: made.store_offsets(offsets=[at]),
        "unassign": made.unassign,
    }


def of_keywords(client: Any) -> Calls:
    """What aiokafka's and kafka-python's consumers have in common; aiokafka's are awaited."""
    made, tp = client.consumer, client.tp(0)
    return {
        "assign": lambda: made.assign([tp]),
        "assignment": made.assignment,
        "beginning_offsets": lambda: made.beginning_offsets([tp]),
        "commit": made.commit,
        "committed": lambda: made.committed(tp),
        "end_offsets": lambda: made.end_offsets([tp]),
        "highwater": lambda: made.highwater(tp),
        "offsets_for_times": lambda: made.offsets_for_times({tp: 1}),
        "partitions_for_topic": lambda: made.partitions_for_topic(client.topic),
        "pause": lambda: made.pause(tp),
        "paused": made.paused,
        "position": lambda: made.position(tp),
        "resume": lambda: made.resume(tp),
        "seek": lambda: made.seek(tp, 1),
        "seek_to_beginning": lambda: made.seek_to_beginning(tp),
        "seek_to_end": lambda: made.seek_to_end(tp),
        "subscription": made.subscription,
        "topics": made.topics,
    }


def of_aiokafka(client: Any) -> Calls:
    made, tp = client.consumer, client.tp(0)
    return {
        **of_keywords(client),
        "getmany": lambda: made.getmany(timeout_ms=1000 * LONG_S),
        "getone": made.getone,
        "last_poll_timestamp": lambda: made.last_poll_timestamp(tp),
        "last_stable_offset": lambda: made.last_stable_offset(tp),
        "seek_to_committed": lambda: made.seek_to_committed(tp),
    }


def of_kafka_python(client: Any) -> Calls:
    made = client.consumer
    return {
        **of_keywords(client),
        "commit_async": made.commit_async,
        "group_metadata": made.group_metadata,
        "metrics": made.metrics,
        "next": lambda: next(made),
        "poll": lambda: made.poll(1000 * LONG_S),
    }


def waits(client: Any) -> Calls:
    """Calls that wait for a record, in each client's ways; the topic gets none."""
    made = client.consumer
    if client.name == "aiokafka":
        return {
            "getone": lambda: client.does("getone"),
            "getmany": lambda: client.does("getmany", timeout_ms=100_000),
        }
    if client.name == "confluent":
        return {
            "poll": made.poll,
            "poll without end": lambda: made.poll(-1),
            "poll for long": lambda: made.poll(LONG_S),
            "consume": lambda: made.consume(10, -1),
        }
    long = LONG_S if client.name == "consumer" else 1000 * LONG_S
    return {"poll": lambda: made.poll(long), "iterate": lambda: list(made)}


CALLS: dict[str, Callable[[Any], Calls]] = {
    "consumer": of_consumer,
    "confluent": of_confluent,
    "aiokafka": of_aiokafka,
    "kafka": of_kafka_python,
}
KINDS = {
    "consumer": holdfast.Consumer,
    "confluent": confluent_kafka.Consumer,
    "aiokafka": aiokafka.AIOKafkaConsumer,
    "kafka": kafka.KafkaConsumer,
}
