"""The application's side of a member whose client works inside the application's ``poll``.

**Rules.** What changes the assignment, and every callback, waits for the application's next poll,
and is done there in order. So nothing is in flight when a hand-over begins: what the application
had is processed. A loss alone does not wait: its partitions are hidden at once.

**Strategy.** The member's thread puts jobs into a mailbox; the poll takes them out.

References: KIP-429 (callbacks), KIP-62.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.adapters.drop_in.fetching_duties import FetchingClientDuties
from holdfast.adapters.member.errands import Errand, Errands, Once
from holdfast.machine import actions
from holdfast.machine.actions import ListenerCall
from holdfast.model.partitions import Resource


class PollSide(Protocol):
    """The duties, done in the application's poll."""

    def hold_back(self, resources: tuple[Resource, ...]) -> None:
        """Hand out nothing more of these."""

    def hide(self, resources: tuple[Resource, ...]) -> None:
        """Hand out nothing of these from now on; called on the member's thread."""

    def forget(self, resources: tuple[Resource, ...]) -> None:
        """These are lost."""

    def tell(
        self, call: ListenerCall, resources: tuple[Resource, ...], listen: Once
    ) -> BaseException | None:
        """Call the listener, by ``listen``; return what it raised."""

    def call_listener(self, call: ListenerCall, resources: tuple[Resource, ...]) -> None:
        """Call the listener; what it raises is raised."""

    def hand_over(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Commit what was processed of these; called on the member's thread."""

    def settle(self, action: actions.JoinCompleted) -> None:
        """A round is over."""


class PollDuties(FetchingClientDuties):
    """Duties that wait for a poll.

    Parameters
    ----------
    side : PollSide
        Does them.
    """

    def __init__(self, side: PollSide):
        super().__init__()
        self._side = side
        self._jobs = Errands()

    def run(self, wait_s: float = 0.0) -> tuple[int, BaseException | None]:
        """Do what waits, the first within ``wait_s``; return how many, and the last error."""
        return self._jobs.do_all(wait_s)

    def later(self, work: Callable[[], None]) -> None:
        """Have this done in the application's poll, after what waits already."""
        self._jobs.put(Errand(lambda: None, lambda _: work()))

    def stop(self, resources: tuple[Resource, ...], drained: Callable[[], None]) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        self._jobs.put(Errand(lambda: self._side.hold_back(resources), lambda _: drained()))

    def drop(self, resources: tuple[Resource, ...], lost: tuple[Resource, ...]) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        self._side.hide(resources)
        self._jobs.put(Errand(lambda: self._side.forget(resources)))

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        listen = Once(lambda: self._side.call_listener(call, resources))
        # As kafka-python: an error of a callback changes nothing of a hand-over.
        self._jobs.put(
            Errand(lambda: self._side.tell(call, resources, listen), lambda _: done(None))
        )

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        self._side.hand_over(action, done)

    def completed(self, action: actions.JoinCompleted) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        self._jobs.put(Errand(lambda: self._side.settle(action)))
