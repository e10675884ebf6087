"""The metrics of members, whichever client runs them: ``Consumer``, ``Worker`` and the drop-ins.

``prometheus_text(consumer)`` is a text to scrape; ``PrometheusCollector(consumer)`` goes into a
registry of ``prometheus_client``; ``metrics_of(consumer)`` is a snapshot. ``docs/members.md`` lists
the names.
"""

from __future__ import annotations

from holdfast.members.metrics import (
    DelayedPartitions,
    MemberMetrics,
    Metered,
    PrometheusCollector,
    prometheus_text,
)

__all__ = [
    "DelayedPartitions",
    "MemberMetrics",
    "PrometheusCollector",
    "metrics_of",
    "prometheus_text",
]


def metrics_of(consumer: Metered) -> MemberMetrics | None:
    """Return the metrics of a member, None while a consumer has no member."""
    return consumer.__holdfast_metrics__()
