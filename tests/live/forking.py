"""A program that forks while its consumer runs: `python -m tests.live.forking CLIENT BROKER TOPIC`.

One child makes every call that may wait, and prints what each raised. Others end: by ``sys.exit``,
by forgetting the consumer, by leaving its ``with`` block, by SIGTERM inside that block, or as a
child of ``multiprocessing`` does. The parent keeps reading. It prints one JSON line: the errors and
durations of the first child's calls, the end and duration of each other child, and the member id of
the parent before and after.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.live.clients import CLIENTS
from tests.live.crew import fresh
from tests.live.waiting import until

import holdfast.aiokafka

CODE = 7
Child = Callable[[], object]


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


def ends(holder: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """How children end that have a copy of the consumer, and in how many seconds."""

    def forgets() -> None:
        holder.clear()
        gc.collect()
        os._exit(CODE)

    def leaves_its_block() -> None:
        with holder["consumer"]:
            sys.exit(CODE)

    def is_terminated() -> None:
        if hasattr(holder["consumer"], "signals"):  # holdfast.Consumer has handlers in its block
            holder["consumer"].signals.watch()
            pid = os.fork()
            if pid == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            _, status = os.waitpid(pid, 0)
            os._exit(CODE if os.waitstatus_to_exitcode(status) == -signal.SIGTERM else 1)
        os._exit(CODE)

    found = {}
    children: dict[str, Child] = {
        "nothing": lambda: os._exit(CODE),
        "exits": lambda: sys.exit(CODE),
    }
    children |= {"forgets": forgets, "is terminated": is_terminated}
    if hasattr(holder["consumer"], "__exit__"):
        children["leaves its block"] = leaves_its_block
    for name, child in children.items():
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            child()
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        found[name] = os.waitstatus_to_exitcode(status), time.monotonic() - began
    began = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(CODE,))
    process.start()
    process.join()
    found["multiprocessing"] = process.exitcode, time.monotonic() - began
    return found


def blocking(name: str, broker: str, topic: str) -> dict[str, Any]:
    client = CLIENTS[name](topic, {"bootstrap.servers": broker, "group.id": fresh("fork")})
    client.subscribe([topic])
    until(lambda: client.poll() and len(client.records) >= 5, "five records")
    before = client.snapshot.identity.member_id
    child = in_child(
        {
            "poll": lambda: client.poll(20.0),
            "commit": client.commit,
            "close": client.consumer.close,
        }
    )
    holder = {"consumer": client.consumer}
    consumer = client.__dict__.pop("consumer")  # its children can forget it
    del consumer
    ended = ends(holder)
    client.consumer = holder["consumer"]
    client.commit()
    after = client.snapshot.identity.member_id
    client.close()
    return {"child": child, "ends": ended, "members": [before, after], "committed": True}


def on_a_loop(broker: str, topic: str) -> dict[str, Any]:
    """aiokafka; a fork has no loop that runs, so the child makes each call on a new one."""
    loop = asyncio.new_event_loop()
    do = loop.run_until_complete
    holder = {"consumer": do(begun(broker, topic))}
    coordinator = holder["consumer"]._coordinator
    before = coordinator.member_id
    child = in_child(
        {
            "poll": lambda: asyncio.run(holder["consumer"].getmany(timeout_ms=20_000)),
            "commit": lambda: asyncio.run(holder["consumer"].commit()),
            "close": lambda: asyncio.run(holder["consumer"].stop()),
        }
    )
    ended = ends(holder)
    do(holder["consumer"].commit())
    after = coordinator.member_id
    do(holder["consumer"].stop())
    return {"child": child, "ends": ended, "members": [before, after], "committed": True}


async def begun(broker: str, topic: str) -> Any:
    """A consumer that has read five records."""
    consumer = holdfast.aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker, group_id=fresh("fork"), auto_offset_reset="earliest"
    )
    await consumer.start()
    n = 0
    while n < 5:
        n += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
    return consumer


if __name__ == "__main__":
    which, *place = sys.argv[1:]
    print(json.dumps(on_a_loop(*place) if which == "aiokafka" else blocking(which, *place)))
