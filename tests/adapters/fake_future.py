"""What :class:`Connections` does with a question, on the thread that asks."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future


def answered(work):
    """The answer to a question, or its error, in a future that is done."""
    done = Future()
    try:
        done.set_result(asyncio.run(work()))
    except Exception as error:
        done.set_exception(error)
    return done
