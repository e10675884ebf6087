"""What every member's duties are where the client fetches by itself."""

from __future__ import annotations

from typing import Any

from holdfast.model.partitions import Resource


class FetchingClientDuties:
    """Duties of a member whose client fetches, and keeps its own listener."""

    def __init__(self) -> None:
        self.listener: Any = None  # the client keeps its own

    def take_over(self, resources: tuple[Resource, ...], term: int) -> None:
        """Do nothing: the client began to fetch when the callback was due."""

    def end(self) -> None:
        """Nothing was opened."""

    def close(self) -> None:
        """Nothing was opened."""
