"""What an app writes down about itself, in the lines of holdfast's demo."""

import time
from pathlib import Path

from holdfast.demo.journal import Entry


class Journal:
    """One process: each record as it is processed."""

    def __init__(self, path, name):
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        self._name = name

    def write(self, partition, offset):
        """This record is processed."""
        entry = Entry(
            time_seconds=time.time(),
            member=self._name,
            event="batch",
            partitions=(partition,),
            first=offset,
            last=offset,
        )
        self._file.write(entry.to_line() + "\n")
        self._file.flush()
