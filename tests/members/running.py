"""How tests run a program in another process, or a coroutine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import wraps

PATIENCE_S = 30


def python(program):
    """A program in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )


def on_a_loop(test):
    """Play a test on a loop of its own."""

    @wraps(test)
    def run(**arguments):
        async def limited():
            await asyncio.wait_for(test(**arguments), PATIENCE_S)

        asyncio.run(limited())

    return run
