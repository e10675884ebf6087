"""What has failed at this worker: how often, with which error, and when it is tried again.

**Rules.**

1. The first attempt after a failure comes after ``backoff_ms``; each further one after twice the
   time before, up to ``backoff_max_ms``. A fifth more or less is added to each, so that resources
   that failed together are not tried together.
2. A failure counts as one in a row with those before, unless the work has run for
   ``backoff_max_ms`` in between.
3. What has failed :data:`REPORTED_AFTER` times in a row is reported to the group, until it has run
   for ``backoff_max_ms``. What another worker has is forgotten :data:`FORGOTTEN_AFTER` times
   ``backoff_max_ms`` after the last failure here; a later failure begins to count anew.

4. The worker asks for a round when what it reports has changed and no round has told it:
   :data:`COLLECT_MS` later, and :data:`ROUND_MS` after the last time it asked, at the earliest.

Example: with 1 s and 300 s the work that cannot begin is tried after about 1, 2, 4 ... 256, 300,
300 s, and is reported after 1 s.

**Strategy.** Plain records by resource. The part that is added to a delay comes from the resource
and the number of the attempt, so the same failures have the same times in every run.

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
_SPREAD = 0.2  # of a delay, at most, that is added or taken away
_TEXT, _NAME = 500, 60  # characters of an error that are kept, and of its type's name


@dataclass(slots=True, kw_only=True)
class Failure:
    """The failures in a row of one resource."""

    count: int
    text: str  # of the last error
    name: str  # of the last error's type
    at_ms: int  # of the last one
    retry_ms: int  # when the resource is tried again


class Failures:
    """Failures of one worker by resource.

    Parameters
    ----------
    backoff_ms, backoff_max_ms : int
        The first delay, and the longest one.
    who : str
        The worker's name: two workers add different parts to their delays.
    """

    def __init__(self, backoff_ms: int, backoff_max_ms: int, who: str = ""):
        self._backoff_ms = backoff_ms
        self.backoff_max_ms = backoff_max_ms
        self._who = who
        self.by_resource: dict[Resource, Failure] = {}
        self.ask_ms: int | None = None  # when a round may have to be asked for
        self._asked_ms = -ROUND_MS
        self._last_reported: tuple[FailedPartitions, ...] = ()  # what the last subscription said

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
        """Forget what failed, because it runs."""
        found = self.by_resource.pop(resource, None)
        if found is not None and found.count >= REPORTED_AFTER:
            self._change(now_ms)

    def report(self, now_ms: int, owned: Container[Resource]) -> tuple[FailedPartitions, ...]:
        """Return what the subscription that is written now says of failures.

        What failed long ago and is not ``owned`` is forgotten (rule 3).
        """
        limit_ms = now_ms - FORGOTTEN_AFTER * self.backoff_max_ms
        for resource, failure in list(self.by_resource.items()):
            if failure.at_ms < limit_ms and resource not in owned:
                del self.by_resource[resource]
        self._last_reported = self._reported()
        return self._last_reported

    def asks(self, now_ms: int) -> bool:
        """Return whether a round has to be asked for now, because no round has told of a change."""
        if self.ask_ms is None or now_ms < self.ask_ms:
            return False
        self.ask_ms = None
        changed = self._reported() != self._last_reported
        if changed:
            self._asked_ms = now_ms
        return changed

    def _change(self, now_ms: int) -> None:
        if self.ask_ms is None:
            self.ask_ms = max(now_ms + COLLECT_MS, self._asked_ms + ROUND_MS)

    def _reported(self) -> tuple[FailedPartitions, ...]:
        """What has failed again and again, sorted by kind and error; the first hundred."""
        found = sorted(r for r, f in self.by_resource.items() if f.count >= REPORTED_AFTER)
        said: dict[tuple[str, str], list[int]] = {}
        for kind, number in found[:MOST_FAILED]:
            said.setdefault((kind, self.by_resource[kind, number].name), []).append(number)
        return tuple(FailedPartitions(*key, tuple(own)) for key, own in sorted(said.items()))
