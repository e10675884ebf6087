"""What holdfast's plain assignors for stock clients share: a leader's turn without a machine.

**Rules.** The client does not tell the generation of the round, so every claim may be true. If a
leader cannot plan, the reason is logged, and the round has what the assignor's ``stay`` gives.

References: KIP-429, "Consumer leader".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader import designs
from holdfast.members.runtime.lag_source import LagSource, TimedLagSource

log = logging.getLogger(__name__)


class StockAssignor:
    """One assignor of ours, and its leader's turn.

    Attributes
    ----------
    spoken : Assignor
        What writes, plans and reads.
    ask : TimedLagSource or None
        What knows lags; a drop-in that gets this object asks the same.
    """

    without_plan: ClassVar[str] = "members keep what they have"

    def __init__(self, spoken: designs.Assignor, lags: LagSource | None, lag_timeout_ms: int):
        self.spoken = spoken
        self.ask = None if lags is None else TimedLagSource(lags, lag_timeout_ms)

    @property
    def name(self) -> str:
        """Protocol name in JoinGroup."""
        return self.spoken.name

    def lead(
        self,
        members: Iterable[JoinedMember],
        counts: Mapping[str, int],
        *,
        generation: int,
        waited_ms: int = 0,
        racks: designs.Racks | None = None,
    ) -> dict[str, bytes]:
        """Bytes of every member's assignment; no true claim has ``generation`` or a later one."""
        computed = designs.compute(
            [self.spoken],
            ComputeAssignment(
                token=0,
                generation=generation,
                protocol_name=self.name,
                members=tuple(members),
                partitions=tuple(sorted(counts.items())),
                member_id="",
                waited_ms=waited_ms,
                unbroken=False,
            ),
            lags=None if self.ask is None else self.ask(counts),
            racks=racks,
        )
        if computed.failure is not None:
            log.error("%s: no plan, %s: %s", self.name, self.without_plan, computed.failure)
        for note in computed.notes:
            log.warning("%s: %s", self.name, note)
        return dict(computed.assignments)


def partition_counts(cluster: Any, topics: Iterable[str]) -> dict[str, int]:
    """Partition counts of the topics that the client knows, by the client's metadata."""
    found = {topic: cluster.partitions_for_topic(topic) for topic in sorted(set(topics))}
    return {topic: max(numbers) + 1 for topic, numbers in found.items() if numbers}
