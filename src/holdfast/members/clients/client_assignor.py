"""What holdfast's plain assignors for stock clients share: a leader's round without a machine.

**Rules.** The client does not pass the generation of the round, so every claim may be true. If a
leader cannot plan, the reason is logged, and the round gets the result of the assignor's ``stay``.

References: KIP-429, "Consumer leader".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader import designs
from holdfast.core.machine.leader.assignor_protocol import Assignor, Racks
from holdfast.members.runtime.leader_planner import LagSource, timed_lag_source

log = logging.getLogger(__name__)


class ClientAssignor:
    """An assignor of holdfast, and its leader's round; a drop-in uses the same lag source."""

    without_plan: ClassVar[str] = "members keep what they have"

    def __init__(self, protocol: Assignor, lags: LagSource | None, lag_timeout_ms: int):
        self.protocol = protocol
        self.lag_source, self.lag_timeout_ms = lags, lag_timeout_ms
        self._lags = None if lags is None else timed_lag_source(lags, lag_timeout_ms)

    @property
    def name(self) -> str:
        """Protocol name in JoinGroup."""
        return self.protocol.name

    def lead(
        self,
        members: Iterable[JoinedMember],
        counts: Mapping[str, int],
        *,
        generation: int,
        waited_ms: int = 0,
        racks: Racks | None = None,
    ) -> dict[str, bytes]:
        """Plan the round; return each member's assignment as bytes.

        A claim counts only if its generation is below ``generation``.
        """
        computed = designs.compute(
            [self.protocol],
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
            lags=None if self._lags is None else self._lags(counts),
            racks=racks,
        )
        if computed.failure is not None:
            log.error("%s: no plan, %s: %s", self.name, self.without_plan, computed.failure)
        for note in computed.notes:
            log.warning("%s: %s", self.name, note)
        return dict(computed.assignments)


def partition_counts(cluster: Any, topics: Iterable[str]) -> dict[str, int]:
    """Return the partition counts of the topics in the client's metadata."""
    partitions = {topic: cluster.partitions_for_topic(topic) for topic in sorted(set(topics))}
    return {topic: max(numbers) + 1 for topic, numbers in partitions.items() if numbers}
