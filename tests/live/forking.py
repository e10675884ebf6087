"""A program that forks while its consumer runs: `python -m tests.live.forking CLIENT BROKER TOPIC`.

The child makes every call that may wait, and prints what each raised; the parent goes on reading.
It prints one JSON line: what the child's calls raised, how long they took, and what the parent has
read after the fork, under which member id before and after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.live.clients import CLIENTS
from tests.live.crew import fresh
from tests.live.waiting import until

import holdfast.aiokafka


def raised(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def in_child(calls: dict[str, Callable[[], object]]) -> dict[str, Any]:
    """Make the calls in a fork; return what each raised, and the seconds of all."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        found: dict[str, Any] = {name: raised(call) for name, call in calls.items()}
        found["seconds"] = time.monotonic() - began
        os.write(writes, json.dumps(found).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as said:
        text = said.read()
    os.waitpid(child, 0)
    answer: dict[str, Any] = json.loads(text)
    return answer


def blocking(name: str, broker: str, topic: str) -> dict[str, Any]:
    client = CLIENTS[name](topic, {"bootstrap.servers": broker, "group.id": fresh("fork")})
    client.subscribe([topic])
    until(lambda: client.poll() and len(client.records) >= 5, "five records")
    before = client.standing.identity.member_id
    child = in_child(
        {
            "poll": lambda: client.poll(20.0),
            "commit": client.commit,
            "close": client.consumer.close,
        }
    )
    client.commit()
    after = client.standing.identity.member_id
    client.close()
    return {"child": child, "members": [before, after], "committed": True}


async def on_a_loop(broker: str, topic: str) -> dict[str, Any]:
    """aiokafka; a fork has no loop that runs, so the child makes each call on a new one."""
    group = fresh("fork")
    consumer = holdfast.aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    n = 0
    while n < 5:
        n += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))

    before = consumer._coordinator.member_id
    child = in_child(
        {
            "poll": lambda: asyncio.run(consumer.getmany(timeout_ms=20_000)),
            "commit": lambda: asyncio.run(consumer.commit()),
            "close": lambda: asyncio.run(consumer.stop()),
        }
    )
    await consumer.commit()
    after = consumer._coordinator.member_id
    await consumer.stop()
    return {"child": child, "members": [before, after], "committed": True}


if __name__ == "__main__":
    which, *place = sys.argv[1:]
    is_aiokafka = which == "aiokafka"
    print(json.dumps(asyncio.run(on_a_loop(*place)) if is_aiokafka else blocking(which, *place)))
