"""One pod of ``bench/rollout.py``: the loop of the README, an event log and a ready file.

Argument: its configuration as JSON. SIGTERM ends the ``with`` block in order. While the file
``NAME.hang`` is in its folder it works on a list without end, and says so by ``NAME.hangs``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from holdfast import Consumer
from holdfast.cli.demo.event_log import EventLogWriter
from holdfast.members.config.arguments import TopicPartition


def main(given: dict[str, object]) -> None:
    """Consume until SIGTERM, or until the process that started this one has ended."""
    name, folder = str(given["name"]), Path(str(given["folder"]))
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        event_log = EventLogWriter(name, file)

        class Listener:
            """Notes who owns what."""

            def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
                """Note a gain."""
                event_log.write("assigned", [tp.partition for tp in partitions])

            def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
                """Note a revocation."""
                event_log.write("revoked", [tp.partition for tp in partitions])

            def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
                """Note a loss."""
                event_log.write("lost", [tp.partition for tp in partitions])

        with Consumer(given["config"]) as consumer:  # type: ignore[arg-type]
            consumer.subscribe([str(given["topic"])], listener=Listener())
            for batch in consumer:
                while (folder / f"{name}.hang").exists():
                    (folder / f"{name}.hangs").touch()
                    time.sleep(0.1)
                for message in batch:
                    at = message.offset()
                    event_log.write("batch", [message.partition()], first=at, last=at)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
