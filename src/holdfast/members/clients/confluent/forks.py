"""Keeps librdkafka's consumers untouched in a fork of their process.

**Rules.** A fork has the memory of its parent's consumers and none of their threads. Destroying
such a consumer waits for these threads, and librdkafka then ends the process with a failed
assertion, even if the program only forgets its consumer or ends. So in a fork every consumer of the
parent stays as it is, until the process ends.

**Strategy.** Python destroys an object with its last reference, at the latest when Python ends. A
fork begins with one more reference to each consumer, which is never released.

References: POSIX, ``fork`` (only the calling thread is copied); librdkafka, INTRODUCTION.md,
"fork()".
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

_consumers: WeakSet[Any] = WeakSet()


def leave_alone_in_forks(consumer: Any) -> None:
    """Keep a fork from destroying ``consumer``."""
    _consumers.add(consumer)


def _keep_for_ever() -> None:
    for consumer in list(_consumers):
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_for_ever)
