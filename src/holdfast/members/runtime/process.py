"""In which process a member lives.

**Rules.** ``os.fork`` copies a member's objects and none of its threads: in the copy nobody
heartbeats, answers, or ever gives a lock back. So each call of a copy raises at once, and the
member goes on in the process that made it. What ends a member that is forgotten does nothing in a
copy: a wait would never end there, and sockets and epoll sets are shared with the parent.

References: POSIX, ``fork`` (only the calling thread is copied).
"""

from __future__ import annotations

import os

from holdfast.errors import LocalProtocolError


class OwnProcess:
    """The process that has made a member, by its number."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_this(self) -> bool:
        """Whether this is that process, and no fork of it."""
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
                f"this member lives in process {self._pid}, and this is a fork of it, process "
                f"{os.getpid()}: make a new one here, or start processes with spawn"
            )
