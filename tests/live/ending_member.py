"""One member as a user writes it, which a signal ends.

Arguments: BOOTSTRAP TOPIC GROUP SHAPE. Every line of stdout is one event. Shapes:

===========  =======================================================================================
``loop``     the README's loop
``poll``     a loop of polls without an end
``close``    the program's own handler calls ``close()``, and the loop ends by it
``exit``     the program's own handler calls ``close()`` and exits
``stop``     the program's own handler calls ``stop()``
``thread``   another thread closes while this one polls
``worker``   ``with Worker`` and its ``run()``
``raises``   a Worker whose ``on_assigned`` raises
===========  =======================================================================================
"""

from __future__ import annotations

import signal
import sys
import threading

from holdfast import Consumer, Worker


def say(*words: object) -> None:
    print(*words, flush=True)


class Listener:
    def on_partitions_assigned(self, partitions) -> None:
        say("assigned", len(partitions))

    def on_partitions_revoked(self, partitions) -> None:
        say("revoked", len(partitions))

    def on_assigned(self, resources) -> None:
        say("assigned", len(resources))

    def on_revoked(self, resources) -> None:
        say("revoked", len(resources))


class Raises(Listener):
    def on_assigned(self, resources) -> None:
        say("assigned", len(resources))
        raise OSError("no disk")


def handle(batch) -> None:
    for message in batch:
        say("read", message.partition(), message.offset())


def run_consumer(config, topic, shape) -> None:
    if shape in ("loop", "poll"):
        with Consumer(config) as consumer:
            consumer.subscribe([topic], Listener())
            if shape == "loop":
                for batch in consumer:
                    handle(batch)
            while True:
                handle(consumer.poll())
    consumer = Consumer(config)
    consumer.subscribe([topic], Listener())

    def on_signal(number, frame) -> None:
        if shape == "stop":
            consumer.stop()
            return
        consumer.close(20.0)
        if shape == "exit":
            sys.exit(7)

    signal.signal(signal.SIGTERM, on_signal)
    if shape == "thread":
        came = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: came.set())
        threading.Thread(target=lambda: (came.wait(), consumer.close(20.0))).start()
    for batch in consumer:
        handle(batch)
    consumer.close()
    say("over")


def main(bootstrap, topic, group, shape) -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 600_000,  # what is committed was committed at the end
    }
    if shape in ("worker", "raises"):
        del config["auto.offset.reset"]
        with Worker(config, {"shard": 3}, Raises() if shape == "raises" else Listener()) as worker:
            worker.run()
    else:
        run_consumer(config, topic, shape)


if __name__ == "__main__":
    main(*sys.argv[1:])
