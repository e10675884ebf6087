"""Waits, with a bound, for a condition to become true."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 120.0


def until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Wait for a condition, however slow the machine is; who waits in vain says for what."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds:g} s in vain for: {text}")
        time.sleep(0.03)
