"""One writer of a folder of tables at a time: a lease that ends with its process.

**Rules.** The writer is the process with the highest token. A lease is broken only when its writer
is provably gone: the writer has ended it; or it runs in our place (one kernel, one mount) and its
lock is free; or its name had no beat for LEASE_SECONDS by our own clock. No clock of another
machine is ever compared with ours. A token is never used twice, so a writer that was stopped and
goes on later finds a higher token, and its commit is refused.

**Strategy.** ``_commits/writer-<token>.json`` is created, which one process can do, and held. A
thread gives it a beat every BEAT_SECONDS. A second writer waits for the first beat, and then says
who writes; without a beat it takes the next token.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Final

from holdfast.errors import SourceError
from holdfast.tables.store import Store, Taken

COMMITS: Final = "_commits"
"""Folder of leases, and of versions of the manifest."""

LEASE_SECONDS: Final = 60.0
BEAT_SECONDS: Final = 2.0
_TRIES: Final = 20
_NAME: Final = re.compile(r"writer-(\d+)\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLease:
    """The right to write, as another process of the same writer can use it.

    Parameters
    ----------
    token : int
        Higher than that of every earlier writer.
    owner : str
        Which process; no two have the same.
    """

    token: int
    owner: str

    def check(self, store: Store) -> None:
        """Refuse to go on where this is not the writer any more.

        Raises
        ------
        SourceError
            The lease has ended, or another process has taken the folder over; the text names it.
        """
        last = _last(store)
        if last is None or last.is_other_than(self.token, self.owner):
            who = "another process" if last is None else str(last)
            raise SourceError(
                f"{who} has taken this folder over, because this process gave no sign of life for "
                f"{LEASE_SECONDS:.0f} s; nothing was committed: start again once it has ended"
            )
        if last.ended:
            raise SourceError("this process has ended its writing; nothing was committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """What a lease says of its writer.

    A record that cannot be read at this moment has a token and nothing else.

    Parameters
    ----------
    place : str
        Its :attr:`~holdfast.tables.store.Store.place`.
    since : str
        ISO 8601, UTC, by its own clock.
    ended : bool
        It writes no more.
    """

    token: int
    owner: str = ""
    host: str = "an unknown host"
    pid: int = 0
    place: str = ""
    since: str = "an unknown time"
    ended: bool = False

    def __str__(self) -> str:
        """Text for people."""
        return f"process {self.pid} on {self.host} (since {self.since})"

    def is_other_than(self, token: int, owner: str) -> bool:
        """Whether this is the lease of another process; a record without an owner does not tell."""
        return self.token != token or bool(self.owner and owner and self.owner != owner)


@contextmanager
def one_writer(
    store: Store,
    what: object,
    *,
    lease_seconds: float = LEASE_SECONDS,
    beat_seconds: float = BEAT_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    note: Callable[[str], None] | None = None,
) -> Iterator[WriterLease]:
    """Be the only writer of a store for as long as the block runs.

    Parameters
    ----------
    what : object
        Name of the store in an error.
    lease_seconds : float
        A writer elsewhere that gives no beat for so long is gone.
    beat_seconds : float
        Time between two beats of ours.
    clock, sleep : callable
        Seconds that only grow, and a wait.
    note : callable, optional
        Called with one line where a writer elsewhere has to be waited for.

    Raises
    ------
    SourceError
        Another process writes; the text names its host and process id.
    """
    record, taken = _take(store, what, _Patience(lease_seconds, clock, sleep, note))
    stop = threading.Event()
    beats = threading.Thread(target=_beat, args=(taken, stop, beat_seconds), daemon=True)
    beats.start()
    lease = WriterLease(token=record.token, owner=record.owner)
    try:
        yield lease
    finally:
        stop.set()
        beats.join()
        try:
            with suppress(SourceError, OSError):
                lease.check(store)
                store.replace(_name(record.token), _text(replace(record, ended=True)))
        finally:
            taken.let_go()


def writer_of(store: Store) -> LeaseRecord | None:
    """The process that has a lease which it did not end; it may be gone. None for no process."""
    last = _last(store)
    return None if last is None or last.ended else last


@dataclass(frozen=True, slots=True)
class _Patience:
    """How long a writer elsewhere may be silent."""

    seconds: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    note: Callable[[str], None] | None = None

    def looks(self) -> Iterator[None]:
        """Once at the start, and again and again, the last time when the time is over."""
        began = self.clock()
        yield
        while self.clock() - began < self.seconds:
            self.sleep(min(BEAT_SECONDS, self.seconds) / 4)
            yield


def _take(store: Store, what: object, patience: _Patience) -> tuple[LeaseRecord, Taken]:
    for _ in range(_TRIES):
        last = _last(store)
        if last is not None and not last.ended:
            _await_end(store, last, what, patience)
        record = LeaseRecord(
            token=1 if last is None else last.token + 1,
            owner=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=os.getpid(),
            place=store.place,
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        taken = store.take(_name(record.token), _text(record))
        if taken is not None:
            for token in _tokens(store):
                if token < record.token:
                    store.delete(_name(token))
            return record, taken
    raise SourceError(f"{what}: other processes begin to write all the time; try again later")


def _await_end(store: Store, last: LeaseRecord, what: object, patience: _Patience) -> None:
    """Wait until a writer is provably gone.

    Raises
    ------
    SourceError
        It gives a sign of life.
    """
    name = _name(last.token)
    first = store.stamp(name)
    for turn, _ in enumerate(patience.looks()):
        now = _last(store)
        if now is not None:
            if now.ended or now.is_other_than(last.token, last.owner):
                return
            last = now if now.owner else last
        if last.place and last.place == store.place and not store.is_held(name):
            return
        if store.stamp(name) != first:
            raise SourceError(
                f"{what} is being written by {last}: one process writes a folder of tables at a "
                "time; wait until that process ends, stop it, or name another folder"
            )
        if not turn and patience.note is not None:
            patience.note(
                f"{what} was being written by {last}, which has not ended: taken over after "
                f"{patience.seconds:.0f} s without a sign of life"
            )


def _beat(taken: Taken, stop: threading.Event, beat_seconds: float) -> None:
    while not stop.wait(beat_seconds):
        with suppress(OSError, SourceError):  # a beat that fails is one that others do not see
            taken.beat()


def _name(token: int) -> str:
    return f"{COMMITS}/writer-{token:09d}.json"


def _tokens(store: Store) -> list[int]:
    found = (_NAME.fullmatch(name) for name in store.names(COMMITS))
    return sorted(int(match.group(1)) for match in found if match)


def _text(record: LeaseRecord) -> bytes:
    return json.dumps(asdict(record)).encode()


def _last(store: Store) -> LeaseRecord | None:
    """The lease with the highest token; one that cannot be read tells nothing but its token."""
    tokens = _tokens(store)
    if not tokens:
        return None
    token = tokens[-1]
    try:
        fields = json.loads(store.read(_name(token)) or b"{}")
        return LeaseRecord(**{**fields, "token": token})
    except (ValueError, TypeError):
        return LeaseRecord(token=token)
