"""Where the partitions of a member behind kafka-python begin: at the group's committed offset.

**Rules.** An open transaction is waited for (KIP-447). The application waits for the answer only if
it asks for a position, or has nothing else to read. A question that nobody answered is asked again.
A partition without a committed offset is left to kafka-python's ``auto_offset_reset``.

References: KIP-447; Kafka's ConsumerCoordinator, ``initWithCommittedOffsetsIfNeeded``.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

from kafka.structs import TopicPartition

from holdfast.core.model.partitions import Resource
from holdfast.errors import HoldfastError
from holdfast.members.drop_in.kafka import errors
from holdfast.members.seat.seat import Seat

_MOMENT_S = 0.05


class MemberStarts:
    """Start positions of one member.

    Parameters
    ----------
    subscription : kafka.consumer.subscription_state.SubscriptionState
        Knows which positions are missing, and is told of them.

    Attributes
    ----------
    is_awaited : bool
        Whether the application has asked for a position, and waits for it.
    """

    def __init__(self, subscription: Any):
        self._subscription = subscription
        self._asked: Future[dict[Resource, int]] | None = None
        self._asked_at = 0.0
        self.is_awaited = False

    def missing(self) -> set[Resource]:
        """Assigned partitions without a position, for which no reset is under way."""
        return set(map(tuple, self._subscription.missing_fetch_positions()))

    def forget(self) -> None:
        """Take no answer to what was asked before."""
        self._asked = None

    def find(self, seat: Seat, timeout_ms: float | None) -> bool:
        """Have partitions begin where the group has committed; whether all of these are known.

        Raises
        ------
        KafkaError
            If no broker will ever tell.
        """
        missing = self.missing()
        if self._asked is None:
            if not missing:
                return True
            self._asked, self._asked_at = seat.ask_places(missing), time.monotonic()
        try:
            found = self._asked.result(self._wait_s(missing, timeout_ms))
        except TimeoutError:
            return False
        except HoldfastError as error:
            self._asked = None
            raised = errors.theirs(error)
            if errors.is_passing(raised):
                return False
            raise raised from error
        missing = self.missing()
        seat.progress.stands(found)
        for tp in sorted(missing & found.keys()):
            if found[tp] >= 0:
                self._subscription.seek(TopicPartition(*tp), found[tp])
        self._asked = None  # last: after an interruption it begins with the same answer
        return missing <= found.keys()

    def _wait_s(self, missing: set[Resource], timeout_ms: float | None) -> float | None:
        """How long to wait for the answer; without an end where the application does."""
        wait_s = None if timeout_ms is None else min(timeout_ms / 1000, threading.TIMEOUT_MAX)
        has_others = len(self._subscription.assigned_partitions()) > len(missing)
        if not has_others or self.is_awaited:
            return wait_s
        left_s = max(0.0, self._asked_at + _MOMENT_S - time.monotonic())  # what stays keeps flowing
        return left_s if wait_s is None else min(wait_s, left_s)
