"""Metadata answers that name no broker: ``python -m tests.live.no_brokers --client confluent``.

A broker that has just started may answer so (librdkafka issue 5301). Twelve consumers read all the
time, through a proxy. It refuses connections for six seconds, then lets them through for twelve and
takes the brokers out of every Metadata answer, for librdkafka alone or with ``--all`` for the
member's own connections as well. Then it changes nothing more. One JSON line a client has the
number of consumers that read nothing in seconds 12 to 20 after that, and the number after two
minutes. The exit code is 1 if the latter are holdfast's.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import confluent_kafka
from tests.live.crew import Topic, fresh
from tests.live.cut import Cut

import holdfast
import holdfast.confluent
from holdfast.local.broker.broker import Broker, BrokerSettings

N_CONSUMERS = 12
REFUSED_S, LIES_S, PASSES_S, LOOKED_AT_S, LATE_S = 6, 12, 12, 8, 100
METADATA, API_VERSIONS, FIRST_FLEXIBLE = 3, 18, 9


class Forgetful(Cut):
    """A proxy before one broker, which it leaves out of Metadata answers while ``lies`` is set."""

    lies = to_all = False
    n_lies = 0

    def __init__(self) -> None:
        self._asked: defaultdict[socket.socket, dict[int | str, Any]] = defaultdict(dict)
        super().__init__()

    def _carried(
        self, source: socket.socket, sink: socket.socket, answers: bool
    ) -> Iterator[bytes]:
        asked = self._asked[sink if answers else source]
        for frame in _frames(source):
            is_lie = answers and self._is_lie(frame, asked)
            if not answers:
                key, version, number = struct.unpack(">hhi", frame[:8])
                asked[number] = key, version
                if key == API_VERSIONS and b"confluent" in frame:
                    asked["fetches"] = True
            self.n_lies += is_lie
            told = _without_brokers(frame) if is_lie else frame
            yield struct.pack(">i", len(told)) + told

    def _is_lie(self, answer: bytes, asked: dict[int | str, Any]) -> bool:
        key, version = asked.pop(struct.unpack(">i", answer[:4])[0])
        is_meant = self.lies and (self.to_all or "fetches" in asked)
        return is_meant and key == METADATA and version >= FIRST_FLEXIBLE


def _frames(source: socket.socket) -> Iterator[bytes]:
    left = b""
    while got := source.recv(65_536):
        left += got
        while len(left) >= 4 and len(left) >= 4 + (size := struct.unpack(">i", left[:4])[0]):
            yield left[4 : 4 + size]
            left = left[4 + size :]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        found |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return found, at


def _without_brokers(answer: bytes) -> bytes:
    """A Metadata answer from version 9 on: number, tags, throttle time, brokers, and the rest."""
    n_brokers, at = _varint(answer, 9)
    for _ in range(n_brokers - 1):
        host, at = _varint(answer, at + 4)
        rack, at = _varint(answer, at + host - 1 + 4)
        _, at = _varint(answer, at + max(0, rack - 1))
    return answer[:9] + b"\1" + answer[at:]


def make(kind: str, port: int, topic: str):
    """One consumer; returns what polls it, and what closes it."""
    config = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "group.id": fresh("lied-to"),
        "auto.offset.reset": "latest",
        "session.timeout.ms": 20_000,
    }
    if kind == "holdfast":
        ours = holdfast.Consumer(config)
        ours.subscribe([topic])
        return lambda: len(ours.poll(0.02)), ours.close
    kinds = {"original": confluent_kafka.Consumer, "confluent": holdfast.confluent.Consumer}
    made = kinds[kind]({**config, "log_level": 0, "error_cb": lambda error: None})
    if kind == "original":
        made.assign([confluent_kafka.TopicPartition(topic, p) for p in range(4)])
    else:
        made.subscribe([topic])
    return lambda: sum(m.error() is None for m in made.consume(100, 0.02)), made.close


def run(kind: str, proxy: Forgetful, topic: Topic) -> dict[str, object]:
    """Lie to twelve consumers of a kind."""
    crew = [make(kind, proxy.port, topic.name) for _ in range(N_CONSUMERS)]

    def read(seconds: float) -> list[int]:
        found, end = [0] * N_CONSUMERS, time.monotonic() + seconds
        while time.monotonic() < end:
            topic.produce(1)
            for n, (poll, _) in enumerate(crew):
                found[n] += poll()
        return found

    assert all(read(10)), "everybody reads"
    proxy.n_lies = 0
    proxy.lies = True
    proxy.reset()
    read(REFUSED_S)
    proxy.mend()
    read(LIES_S)
    proxy.lies = False
    read(PASSES_S)
    stalled = read(LOOKED_AT_S).count(0)
    late = 0
    if stalled:
        read(LATE_S - 10)
        late = read(10).count(0)
    for _, close in crew:
        close()
    return {"client": kind, "lies": proxy.n_lies, "silent": stalled, "silent_after_120_s": late}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ("original", "confluent", "holdfast")
    parser.add_argument("--client", choices=kinds, action="append")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    proxy = Forgetful()
    proxy.to_all = options.all
    settings = BrokerSettings(listeners={"L": "PLAINTEXT"}, advertised={"L": (proxy.port,)})
    wrong = False
    with Broker.start(settings=settings) as broker:
        host, port = broker.bootstrap_of("L").split(":")
        proxy.target = (host, int(port))
        topic = Topic(broker.bootstrap, 4)
        for kind in options.client or kinds:
            found = run(kind, proxy, topic)
            print(json.dumps(found), flush=True)
            wrong = wrong or (kind != "original" and bool(found["silent_after_120_s"]))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
