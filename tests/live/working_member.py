"""One holdfast.Worker of a program, whose work a signal or a crash ends.

Arguments: BOOTSTRAP GROUP FORM N CONFIG, the last one as JSON. Every line of stdout is one event,
with its time in seconds. Forms:

============  ======================================================================================
``looks``     ``run`` takes 20 s to start a resource, and looks at its stop meanwhile
``blind``     ``run`` takes 20 s to start a resource, and does not look
``task``      the same as a coroutine that does not look, and is cancelled
``listener``  ``on_assigned`` starts one resource a second, and does not look
``quick``     ``run`` starts and ends at once
``slow``      ``run`` needs 40 s to end
============  ======================================================================================
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

from holdfast import Worker

SAYS = threading.Lock()


def say(*words: object) -> None:
    with SAYS:  # a line of several threads is no line
        print(f"{time.time():.3f}", *words, flush=True)


def begun(resource) -> None:
    say("begins", resource.number)


def looks(resource, stop) -> None:
    begun(resource)
    if stop.wait(20):
        say("ended", resource.number)
        return
    say("runs", resource.number)
    stop.wait()


def blind(resource, stop) -> None:
    begun(resource)
    time.sleep(20)
    say("runs", resource.number)


async def task(resource, stop) -> None:
    begun(resource)
    try:
        await asyncio.sleep(20)
    finally:
        say("cancelled", resource.number)


def quick(resource, stop) -> None:
    say("runs", resource.number)
    stop.wait()
    say("ended", resource.number)


def slow(resource, stop) -> None:
    say("runs", resource.number)
    stop.wait()
    say("ending", resource.number)
    time.sleep(40)
    say("ended", resource.number, stop.is_lost)


class Listener:
    def on_assigned(self, resources) -> None:
        for resource in resources:
            begun(resource)
            time.sleep(1)

    def on_revoked(self, resources) -> None:
        say("revoked", len(resources))


def main(bootstrap, group, form, n, config) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        **json.loads(config),
    }
    work = {"listener": Listener()} if form == "listener" else {"run": globals()[form]}
    with Worker(settings, {"job": int(n)}, **work) as worker:
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
