"""Rebalance listeners: KIP-54's old and new one, driven by KIP-429's three callbacks.

**Rules.**

- ``on_partitions_assigned`` gets what was added, ``on_partitions_revoked`` what is given up while
  the member may still commit it, ``on_partitions_lost`` what another may own already.
- Under an eager protocol added is everything and revoked is everything; under a cooperative one
  they are differences.
- The old listener cleans up what is revoked and prepares what is assigned, all of it. The new one
  commits what is revoked, and cleans up or prepares only the difference between its last
  assignment and the new one.

**Strategy.** Both call three functions, which a test replaces and counts.

References: KIP-54, "Public Interfaces" (``MyOldRebalanceListener``, ``MyNewRebalanceListener``);
KIP-429, "Rebalance Callback".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.model.partitions import Resource


class RebalanceListener(Protocol):
    """What an application may listen to."""

    def on_partitions_assigned(self, resources: tuple[Resource, ...]) -> None:
        """These are the member's from now on."""

    def on_partitions_revoked(self, resources: tuple[Resource, ...]) -> None:
        """These will be another's; commits still count."""

    def on_partitions_lost(self, resources: tuple[Resource, ...]) -> None:
        """These may be another's already; commits would be refused."""


@dataclass(slots=True)
class Work:
    """What a listener does to one resource; replace the functions with real ones."""

    commit: Callable[[Resource], None] = lambda resource: None
    clean_up: Callable[[Resource], None] = lambda resource: None
    prepare: Callable[[Resource], None] = lambda resource: None


@dataclass(slots=True)
class OldListener:
    """Cleans up everything that is revoked, prepares everything that is assigned."""

    work: Work = field(default_factory=Work)

    def on_partitions_assigned(self, resources: tuple[Resource, ...]) -> None:
        """Prepare all."""
        _each(self.work.prepare, resources)

    def on_partitions_revoked(self, resources: tuple[Resource, ...]) -> None:
        """Commit and clean up all."""
        for resource in resources:
            self.work.commit(resource)
            self.work.clean_up(resource)

    def on_partitions_lost(self, resources: tuple[Resource, ...]) -> None:
        """Clean up all; there is nothing left to commit."""
        _each(self.work.clean_up, resources)


@dataclass(slots=True)
class NewListener:
    """Commits what is revoked; cleans up and prepares only what differs from its last assignment.

    ``cooperative`` says whether ``resources`` of an assignment are added to what stays.
    """

    work: Work = field(default_factory=Work)
    cooperative: bool = False
    last: frozenset[Resource] = frozenset()
    given_up: frozenset[Resource] = frozenset()

    def on_partitions_assigned(self, resources: tuple[Resource, ...]) -> None:
        """Clean up ``difference(last, new)``, prepare ``difference(new, last)``."""
        new = frozenset(resources)
        if self.cooperative:
            new |= self.last - self.given_up
        _each(self.work.clean_up, sorted(self.last - new))
        _each(self.work.prepare, sorted(new - self.last))
        self.last, self.given_up = new, frozenset()

    def on_partitions_revoked(self, resources: tuple[Resource, ...]) -> None:
        """Only commit: whether it goes for good is not known yet."""
        _each(self.work.commit, resources)
        self.given_up |= frozenset(resources)

    def on_partitions_lost(self, resources: tuple[Resource, ...]) -> None:
        """Clean up at once: another may work on them."""
        _each(self.work.clean_up, resources)
        self.last -= frozenset(resources)


def _each(function: Callable[[Resource], None], resources: Iterable[Resource]) -> None:
    for resource in resources:
        function(resource)
