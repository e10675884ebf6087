"""Speed of the scalar decoders of group messages in one process, beside two peers.

    taskset -c 0 python bench/wire_messages.py [--repeats 7]

Prints one JSON line per case: messages per CPU second, by the minimum and the median of the
repeats. The peers are kafka-python's own codec and a loop of ``struct.unpack_from`` without checks.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as KafkaPythonAssignment
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as KafkaPythonSubscription

from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.container import (
    MemberSubscription,
    decode_member_subscription,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.state_shard import (
    MemberEntry,
    StateShard,
    decode_shard,
    encode_shard,
)

N_MEMBERS = 200
Case = tuple[str, str, int, Callable[[], Any]]


def subscriptions(n_topics: int, n_owned: int) -> list[bytes]:
    """Version 3, the same topics for all members, other partitions owned by each."""
    topics = tuple(f"domain.events-{i:06d}" for i in range(n_topics))
    return [
        encode_subscription(
            Subscription(
                topics=topics,
                user_data=struct.pack(">i", 7),
                owned=tuple((topics[(m * n_owned + i) % n_topics], (m,)) for i in range(n_owned)),
                generation=7,
                rack="eu-west-1a",
            )
        )
        for m in range(N_MEMBERS)
    ]


def struct_loop(data: bytes) -> tuple[list[str], bytes | None, list[tuple[str, list[int]]], int]:
    """A subscription v3 by hand: no check, no object."""
    unpack = struct.unpack_from
    at = 6
    topics = []
    for _ in range(unpack(">i", data, 2)[0]):
        size = unpack(">h", data, at)[0]
        topics.append(data[at + 2 : at + 2 + size].decode())
        at += 2 + size
    size = unpack(">i", data, at)[0]
    user_data = None if size < 0 else data[at + 4 : at + 4 + size]
    at += 4 + max(size, 0)
    owned = []
    count = unpack(">i", data, at)[0]
    at += 4
    for _ in range(count):
        size = unpack(">h", data, at)[0]
        topic = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        n = unpack(">i", data, at)[0]
        owned.append((topic, list(unpack(f">{n}i", data, at + 4))))
        at += 4 + 4 * n
    return topics, user_data, owned, unpack(">i", data, at)[0]


def all_of(decode: Callable[[bytes], Any], messages: list[bytes]) -> Callable[[], None]:
    """A run over every message."""

    def run() -> None:
        for data in messages:
            decode(data)

    return run


def cases() -> list[Case]:
    """Name, variant, messages a run, the run."""
    out: list[Case] = []
    for n_topics, n_owned in ((1000, 20), (10, 3)):
        messages = subscriptions(n_topics, n_owned)
        assert struct_loop(messages[3])[2] == [
            (topic, list(p)) for topic, p in decode_subscription(messages[3]).owned
        ]
        name = f"subscription of {n_topics} topics, {n_owned} owned"
        out += [
            (name, "holdfast", N_MEMBERS, all_of(decode_subscription, messages)),
            (name, "kafka-python", N_MEMBERS, all_of(KafkaPythonSubscription.decode, messages)),
            (name, "struct loop", N_MEMBERS, all_of(struct_loop, messages)),
        ]
    value = AssignmentMessage(partitions=tuple((f"events-{i:06d}", (0, 1, 2)) for i in range(50)))
    data = [encode_assignment(value)] * N_MEMBERS
    name = "assignment of 50 topics, 150 partitions"
    out += [
        (name, "holdfast", N_MEMBERS, all_of(decode_assignment, data)),
        (name, "kafka-python", N_MEMBERS, all_of(KafkaPythonAssignment.decode, data)),
    ]
    neighbours = tuple(
        MemberEntry(identity=f"{m:019b}", owned=((f"{m:020b}", tuple(range(m, 2000, 40))),))
        for m in range(3)
    )
    leader_state = encode_shard(StateShard(generation=7, neighbours=neighbours))
    claim = encode_member_subscription(
        MemberSubscription(topics=("events",), generation=7, leader_state=leader_state)
    )
    out += [
        (
            f"share of the memory with 150 partitions, {len(leader_state)} bytes",
            "holdfast",
            N_MEMBERS,
            all_of(decode_shard, [leader_state] * N_MEMBERS),
        ),
        (
            "claim that carries it",
            "holdfast",
            N_MEMBERS,
            all_of(decode_member_subscription, [claim] * N_MEMBERS),
        ),
    ]
    return out


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    for name, variant, n_messages, run in cases():
        run()
        seconds = []
        for _ in range(repeats):
            started = time.process_time()
            run()
            seconds.append(time.process_time() - started)
        line = {
            "case": name,
            "variant": variant,
            "per_second_best": round(n_messages / min(seconds)),
            "per_second_median": round(n_messages / statistics.median(seconds)),
            "commit": commit,
            "python": platform.python_version(),
            "cpu": platform.processor() or platform.machine(),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
