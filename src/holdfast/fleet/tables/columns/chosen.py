"""Match groups with ``--group``: by name, by pattern, or all but those of Spark's connector.

**Rules.** A name matches the group of that name, even if it looks like a pattern (``etl*``).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

SPARK_GROUPS: Final = ("spark-kafka-relation-", "spark-kafka-source-")
"""Groups of Spark's own connector, one a subscription: omitted unless requested."""


def is_pattern(wanted: str) -> bool:
    """Return whether a ``--group`` is a pattern rather than a name."""
    return any(char in wanted for char in "*?[")


def means(wanted: str, group: str) -> bool:
    """Return whether a name or a pattern matches a group."""
    return group == wanted or fnmatchcase(group, wanted)
