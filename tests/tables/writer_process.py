"""A process that writes to a folder of tables: run by a test. A ROOT is a path or a URL.

``python writer_process.py hold ROOT ID`` begins to write, says so, waits for a line, and commits
batch ID made from what stood there when it began. ``python writer_process.py stream ROOT ID`` is a
stream that commits batch ID, says so, and ends after a line. ``python writer_process.py add ROOT
FIRST LAST`` commits batches FIRST to LAST, one by one, again where another process was faster.
``python writer_process.py die ROOT ID WHERE`` kills itself in the middle of the commit of a batch:
after its entries (``entry``), or after the version of the manifest (``manifest``). ``python
writer_process.py die_anywhere ROOT KIND`` has a writer killed before each operation that changes a
file, one after the other, and looks at the tables after each. The last line says ``committed`` or
why not.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from holdfast.errors import SourceError
from holdfast.fleet.tables.folder import commits
from holdfast.fleet.tables.folder.maintenance import merge
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, read_tables
from holdfast.fleet.tables.storage.paths import file_system_of, storage_path

sys.path.insert(0, str(Path(__file__).parents[2]))
BEGUN = {"first": 0, "next": 1, "replacing": 1, "merge": 3}
"""Kind of change -> how many batches are there before."""
CHANGES = {"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}
"""Audit events of operations that change a file; opening one to write is another."""


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hold(root, batch):
    tables = Tables(storage_path(root))
    with tables.writing():
        before = tables.manifest()
        print("held", flush=True)
        sys.stdin.readline()
        tables.commit(Batch(id=int(batch), files={}), made_from=before)
    print("committed", flush=True)


def stream(root, batch):
    tables = Tables(storage_path(root))
    with tables.writing(again_seconds=1):
        tables.commit(Batch(id=int(batch), files={}))
        print("committed", flush=True)
        sys.stdin.readline()


def add(root, first, last):
    for batch in range(int(first), int(last) + 1):
        while True:
            try:
                Tables(storage_path(root)).commit(Batch(id=batch, files={}))
                break
            except SourceError as error:
                print(error, flush=True)
    print("committed", flush=True)


def die_at(root, batch, where):
    from tests.tables.test_commits import written

    place = storage_path(root)
    step = {
        "entry": (commits, "commit_manifest"),
        "manifest": (type(file_system_of(place)), "replace"),
    }
    tables, found = Tables(place), written(place, int(batch), "dead")
    with tables.writing():
        setattr(*step[where], lambda *_, **__: die())
        tables.commit(found)


def die_anywhere(root, kind):
    """Kill before operation 0, 1, 2 and so on, until a writer comes to its end."""
    from tests.tables.test_snapshot import two_tables

    place, begun, at = Path(root) / "killed", Path(root) / "begun", 0
    begun.mkdir()
    for batch in range(BEGUN[kind]):
        Tables(begun).commit(two_tables(begun, batch))
    status = int(signal.SIGKILL)
    while status == signal.SIGKILL:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(begun, place)
        status = child(killed_at, place, at, kind)
        assert child(looked_at, place, kind, status == 0) == 0, at
        at += 1
    assert status == 0
    print(at, flush=True)
    print("committed", flush=True)


def child(work, *arguments):
    """Do something in a process of its own; how it ended, as ``wait`` says it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        work(*arguments)
        os._exit(0)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)


def killed_at(place, at, kind):
    from tests.tables.test_snapshot import two_tables

    done = [0]

    def hook(event, arguments):
        if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            if done[0] == at:
                die()
            done[0] += 1

    tables = Tables(place)
    with tables.writing(again_seconds=1):
        batch = two_tables(place, BEGUN[kind]) if kind != "merge" else None
        sys.addaudithook(hook)
        if batch is None:
            merge(tables.folder, everything=True)
        else:
            tables.commit(batch, replace=kind == "replacing")


def looked_at(place, kind, is_whole):
    """The change is there in both tables or in none, and the next writer goes on at once."""
    from tests.tables.test_snapshot import groups, two_tables

    n = BEGUN[kind]
    before = [f"g{batch}" for batch in range(n)]
    after = {"replacing": [f"g{n}"], "merge": before}.get(kind, [*before, f"g{n}"])
    try:
        found = groups(read_tables(place))
        assert found == groups(read_tables(place), "rebalances")
    except SourceError:
        assert n == 0
        found = []
    assert found == after or (found == before and not is_whole)
    Tables(place).commit(two_tables(place, n + 1))
    assert groups(Tables(place)) == groups(Tables(place), "rebalances") == [*found, f"g{n + 1}"]


if __name__ == "__main__":
    run = {
        "hold": hold,
        "stream": stream,
        "add": add,
        "die": die_at,
        "die_anywhere": die_anywhere,
    }
    try:
        run[sys.argv[1]](*sys.argv[2:])
    except SourceError as error:
        print(error, flush=True)
