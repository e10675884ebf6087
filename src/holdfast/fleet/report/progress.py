"""How a caller follows work on many groups: a wrapper around the list of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

Track: TypeAlias = Callable[[Sequence[str]], Iterable[str]]
"""Takes names of groups and hands them on one by one; ``iter`` shows nothing."""
