"""Failures at this worker: how often, with which error, and the time of the next attempt.

**Rules.**

1. The first attempt after a failure comes after ``backoff_ms``; each further one after twice the
  previous delay, up to ``backoff_max_ms``. Each delay varies by up to a fifth, so that resources
  that failed together are not restarted together.
2. A failure continues the row of failures before it, unless the work has run for ``backoff_max_ms``
  in between.
3. A resource that has failed :data:`REPORTED_AFTER` times in a row is reported to the group, until
  its work has run for ``backoff_max_ms``. A resource of another worker is forgotten
  :data:`FORGOTTEN_AFTER` times ``backoff_max_ms`` after the last failure here; a later failure
  counts from 1.

4. The worker requests a round when its report has changed and no round has carried it: at the
  earliest :data:`COLLECT_MS` later, and :data:`ROUND_MS` after its last request.

Example: with 1 s and 300 s, work that cannot start is restarted after about 1, 2, 4 ... 256, 300,
300 s, and is reported after 1 s.

**Strategy.** Plain records by resource. The variation of a delay is a function of the resource and
the attempt's number, so the same failures have the same times in every run.

References: systemd's ``RestartSec``; Kubernetes, "CrashLoopBackOff"; KIP-144 and KIP-580 (the
exponential back-off of clients).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from hashlib import blake2b

from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.container import MOST_FAILED, FailedPartitions

REPORTED_AFTER = 2
FORGOTTEN_AFTER = 2
COLLECT_MS = 1_000
ROUND_MS = 10_000
_SPREAD = 0.2  # largest variation of a delay, as a part of it
_TEXT, _NAME = 500, 60  # characters kept of an error, and of its type's name


@dataclass(slots=True, kw_only=True)
class Failure:
    """The failures in a row of one resource."""

    count: int
    text: str  # of the last error
    name: str  # of the last error's type
    at_ms: int  # of the last failure
    retry_ms: int  # time of the next attempt


class Failures:
    """Failures of one worker by resource.

    Parameters
    ----------
    backoff_ms, backoff_max_ms : int
        The first delay, and the longest one.
    who : str
        The worker's name: the delays of two workers vary differently.
    """

    def __init__(self, backoff_ms: int, backoff_max_ms: int, who: str = ""):
        self._backoff_ms = backoff_ms
        self.backoff_max_ms = backoff_max_ms
        self._who = who
        self.by_resource: dict[Resource, Failure] = {}
        self.check_ms: int | None = None  # when to check whether to request a round
        self._requested_ms = -ROUND_MS
        self._last_reported: tuple[FailedPartitions, ...] = ()  # in the last subscription

    def note(self, resource: Resource, error: BaseException, now_ms: int, began_ms: int) -> Failure:
        """Count a failure of an attempt that began at ``began_ms``."""
        before = self.by_resource.get(resource)
        lasted = now_ms - began_ms >= self.backoff_max_ms
        count = 1 if before is None or lasted else before.count + 1
        name = type(error).__name__
        self.by_resource[resource] = found = Failure(
            count=count,
            text=f"{name}: {error}"[:_TEXT],
            name=name[:_NAME],
            at_ms=now_ms,
            retry_ms=now_ms + self._delay_ms(resource, count),
        )
        if count >= REPORTED_AFTER:
            self._change(now_ms)
        return found

    def _delay_ms(self, resource: Resource, count: int) -> int:
        whole_ms = min(self._backoff_ms << min(count - 1, 30), self.backoff_max_ms)
        kind, number = resource
        digest = blake2b(f"{self._who} {kind} {number} {count}".encode(), digest_size=4).digest()
        part = int.from_bytes(digest) / (2**32 - 1)
        return round(whole_ms * (1 - _SPREAD + 2 * _SPREAD * part))

    def clear(self, resource: Resource, now_ms: int) -> None:
        """Forget the failures of a resource whose work runs."""
        found = self.by_resource.pop(resource, None)
        if found is not None and found.count >= REPORTED_AFTER:
            self._change(now_ms)

    def report(self, now_ms: int, owned: Container[Resource]) -> tuple[FailedPartitions, ...]:
        """Return the failures for a subscription, and record them as reported.

        Old failures of resources that are not ``owned`` are forgotten (rule 3).
        """
        limit_ms = now_ms - FORGOTTEN_AFTER * self.backoff_max_ms
        for resource, failure in list(self.by_resource.items()):
            if failure.at_ms < limit_ms and resource not in owned:
                del self.by_resource[resource]
        self._last_reported = self._reported()
        return self._last_reported

    def is_round_due(self, now_ms: int) -> bool:
        """Return whether to request a round now, because no round has carried a change."""
        if self.check_ms is None or now_ms < self.check_ms:
            return False
        self.check_ms = None
        changed = self._reported() != self._last_reported
        if changed:
            self._requested_ms = now_ms
        return changed

    def _change(self, now_ms: int) -> None:
        if self.check_ms is None:
            self.check_ms = max(now_ms + COLLECT_MS, self._requested_ms + ROUND_MS)

    def _reported(self) -> tuple[FailedPartitions, ...]:
        """Return repeated failures, sorted by kind and error; the first hundred."""
        found = sorted(r for r, f in self.by_resource.items() if f.count >= REPORTED_AFTER)
        by_error: dict[tuple[str, str], list[int]] = {}
        for kind, number in found[:MOST_FAILED]:
            by_error.setdefault((kind, self.by_resource[kind, number].name), []).append(number)
        return tuple(FailedPartitions(*key, tuple(own)) for key, own in sorted(by_error.items()))
