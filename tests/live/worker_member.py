"""One holdfast.Worker with an event log: resources of one kind by number.

Arguments: BOOTSTRAP GROUP NAME EVENT_LOG CONFIG RESOURCES, the last two as JSON. SIGTERM closes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast import Worker
from holdfast.cli.demo.event_log import EventLogWriter
from holdfast.cli.demo.lifeline import watch


def main(bootstrap, group, name, event_log, config, resources) -> None:
    stop = watch()
    with Path(event_log).open("a", encoding="utf-8") as file:
        writer = EventLogWriter(name, file)

        def write(event, owned=()) -> None:
            writer.write(event, [resource.number for resource in owned])

        class Listener:
            def on_assigned(self, owned) -> None:
                write("assigned", owned)

            def on_revoked(self, owned) -> None:
                write("revoked", owned)

            def on_lost(self, owned) -> None:
                write("lost", owned)

        settings = {"bootstrap.servers": bootstrap, "group.id": group, **json.loads(config)}
        with Worker(settings, json.loads(resources), Listener()) as worker:
            while not stop.wait(0.1):
                assert worker.generation >= -1
        write("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
