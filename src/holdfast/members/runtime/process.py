"""The process in which a member runs.

**Rules.** ``os.fork`` copies a member's objects and none of its threads: in the copy no thread
sends heartbeats, answers, or ever releases a lock. So each call of a copy raises at once, and the
member continues in the process that made it. The finaliser of a forgotten member does nothing in a
copy: a wait would never end there, and sockets and epoll sets are shared with the parent.

References: POSIX, ``fork`` (only the calling thread is copied).
"""

from __future__ import annotations

import os

from holdfast.errors import LocalProtocolError


class OwnProcess:
    """The process that made a member, by its process id."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_this(self) -> bool:
        """Return whether this is that process, not a fork of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise if this is another process.

        Raises
        ------
        LocalProtocolError
            In a child of ``os.fork``, for each call.
        """
        if not self.is_this():
            raise LocalProtocolError(
                f"this member runs in process {self._pid}, and this is a fork of it, process "
                f"{os.getpid()}: make a new one here, or start processes with spawn"
            )
