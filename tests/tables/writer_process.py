"""A process that writes to a folder of tables: run by a test.

``python writer_process.py hold ROOT ID`` becomes the writer, says so, waits for a line, and commits
batch ID made from what stood there when it began. ``python writer_process.py add ROOT FIRST LAST``
commits batches FIRST to LAST, one by one, again where another process was faster. The last line
says ``committed`` or why not.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.errors import SourceError
from holdfast.tables.lease import one_writer
from holdfast.tables.manifest import Batch
from holdfast.tables.reading import Tables
from holdfast.tables.store import FolderStore


def hold(root, batch):
    tables = Tables(Path(root))
    with one_writer(FolderStore(tables.root), tables.root, beat_seconds=0.02) as writer:
        before = tables.manifest()
        print("held", flush=True)
        sys.stdin.readline()
        tables.commit(Batch(id=int(batch), files={}), made_from=before, writer=writer)
    print("committed", flush=True)


def add(root, first, last):
    for batch in range(int(first), int(last) + 1):
        while True:
            try:
                Tables(Path(root)).commit(Batch(id=batch, files={}))
                break
            except SourceError as error:
                print(error, flush=True)
    print("committed", flush=True)


if __name__ == "__main__":
    try:
        {"hold": hold, "add": add}[sys.argv[1]](*sys.argv[2:])
    except SourceError as error:
        print(error, flush=True)
