"""A process that writes to a folder of tables: run by a test.

``python writer_process.py hold ROOT ID`` becomes the writer, says so, waits for a line, and commits
batch ID made from what stood there when it began. ``python writer_process.py add ROOT FIRST LAST``
commits batches FIRST to LAST, one by one, again where another process was faster. ``python
writer_process.py die ROOT ID WHERE`` kills itself in the middle of the commit of a batch: after its
entries (``entry``), or after the version of the manifest (``manifest``). The last line says
``committed`` or why not. A ROOT is a path or a URL.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from holdfast.errors import SourceError
from holdfast.tables import commits
from holdfast.tables.lease import one_writer
from holdfast.tables.manifest import Batch
from holdfast.tables.places import place_of
from holdfast.tables.reading import Tables
from holdfast.tables.remote_store import store_of


def hold(root, batch):
    tables = Tables(place_of(root))
    with one_writer(store_of(tables.root), tables.root, beat_seconds=0.02) as writer:
        before = tables.manifest()
        print("held", flush=True)
        sys.stdin.readline()
        tables.commit(Batch(id=int(batch), files={}), made_from=before, writer=writer)
    print("committed", flush=True)


def add(root, first, last):
    for batch in range(int(first), int(last) + 1):
        while True:
            try:
                Tables(place_of(root)).commit(Batch(id=batch, files={}))
                break
            except SourceError as error:
                print(error, flush=True)
    print("committed", flush=True)


def die(root, batch, where):
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.tables.test_commits import written

    place = place_of(root)
    step = {"entry": (commits, "commit_manifest"), "manifest": (type(store_of(place)), "replace")}
    killed = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    tables, found = Tables(place), written(place, int(batch), "dead")
    with tables.writing() as writer:
        setattr(*step[where], killed)
        tables.commit(found, writer=writer)


if __name__ == "__main__":
    try:
        {"hold": hold, "add": add, "die": die}[sys.argv[1]](*sys.argv[2:])
    except SourceError as error:
        print(error, flush=True)
