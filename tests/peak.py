"""Memory of a call, counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from holdfast.core.wire.many.ragged import keep_freed_memory


def peak_bytes(call: Callable[[], object]) -> int:
    """Most memory in use during a call, its answer included."""
    keep_freed_memory()  # its block is counted once in a process
    tracemalloc.start()
    try:
        answer = call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del answer
    return peak
