"""What an app writes down about itself, in the lines of holdfast's demo."""

from pathlib import Path

from holdfast.cli.demo.event_log import EventLogWriter


class EventLog:
    """One process: each record as it is processed."""

    def __init__(self, path, name):
        self._writer = EventLogWriter(name, Path(path).open("a", encoding="utf-8"))  # noqa: SIM115

    def write(self, partition, offset):
        self._writer.write("batch", [partition], first=offset, last=offset)
