"""A bounded cache: results of small arguments are kept, those of large ones are recomputed.

**Rules.** The cache is bounded in bytes, not only in entries: an argument above the limit is
neither kept nor looked up. Members and leaders live for months, and a single message of another
member may be as large as a broker allows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

Made = TypeVar("Made")


def memoized(
    entries: int, *, largest: int, size: Callable[[Any], int] = len
) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Decorate a pure function so that its last results are cached.

    Parameters
    ----------
    entries : int
        Number of results that are kept.
    largest : int
        Size of the first argument from which on results are not kept.
    size : callable
        Size of the first argument; much cheaper than the function itself.
    """

    def decorate(function: Callable[..., Made]) -> Callable[..., Made]:
        small = lru_cache(maxsize=entries)(function)

        @wraps(function)
        def call(first: Any, *others: Any) -> Made:
            return (small if size(first) < largest else function)(first, *others)

        return call

    return decorate
