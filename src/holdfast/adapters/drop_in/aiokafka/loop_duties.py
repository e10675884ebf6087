"""The application's side of a member whose client lives on an event loop.

**Rules.** The member's thread never waits for the loop, and the loop never for the member: every
duty is a job for the loop, done in the order in which the member asked. A loop that has ended does
its jobs by not doing them: nothing of them was handed out. An exception of a signal's handler may
come into a job and end the loop's run: the job is done again when the loop goes on.

**Strategy.** :class:`LoopDuties` carries the calls over; :class:`LoopSide` is what stands on the
loop's side, and answers when a task of its own is over, however that ends.

References: KIP-429 (callbacks).
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from functools import partial
from typing import Protocol

from holdfast.adapters.drop_in.fetching_duties import FetchingClientDuties
from holdfast.adapters.member.errands import Errand, Errands
from holdfast.machine import actions
from holdfast.machine.actions import ListenerCall
from holdfast.model.partitions import Resource


class LoopSide(Protocol):
    """The duties, done on the loop; see :class:`holdfast.adapters.member.host.Duties`."""

    def hold_back(self, resources: tuple[Resource, ...], drained: Callable[[], None]) -> None:
        """Hand out nothing more of these."""

    def lose(self, resources: tuple[Resource, ...]) -> None:
        """These belong to somebody else, perhaps."""

    def tell(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """Call the listener."""

    def hand_over(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Commit what is processed of these."""

    def settle(self, action: actions.JoinCompleted) -> None:
        """A round is over."""


class LoopDuties(FetchingClientDuties):
    """Carries duties to a loop.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        Where the application lives.
    side : LoopSide
        Does them there.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, side: LoopSide):
        super().__init__()
        self._loop = loop
        self._side = side
        self._jobs = Errands()

    def _later(self, work: Callable[..., None], *arguments: object) -> bool:
        self._jobs.put(Errand(partial(work, *arguments)))
        try:
            self._loop.call_soon_threadsafe(self._do_next)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _do_next(self) -> None:
        try:
            self._jobs.do_next(0.0)
        except queue.Empty:  # done already, after an interruption
            return
        except BaseException:
            self._loop.call_soon(self._do_next)  # if it is in its place again
            raise

    def stop(self, resources: tuple[Resource, ...], drained: Callable[[], None]) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        if not self._later(self._side.hold_back, resources, drained):
            drained()

    def drop(self, resources: tuple[Resource, ...], lost: tuple[Resource, ...]) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        self._later(self._side.lose, resources)

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        if not self._later(self._side.tell, call, resources, done):
            done(None)

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        if not self._later(self._side.hand_over, action, done):
            done(-1)

    def completed(self, action: actions.JoinCompleted) -> None:
        """See :class:`~holdfast.adapters.member.host.Duties`."""
        self._later(self._side.settle, action)
