"""Which groups ``--group`` means: by name, by pattern, or all but those of Spark's own connector.

**Rules.** A name means the group of that name, also where it looks like a pattern (``etl*``).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

SPARK_GROUPS: Final = ("spark-kafka-relation-", "spark-kafka-source-")
"""Groups that Spark's own connector makes when it subscribes: left out unless asked for."""


def is_pattern(wanted: str) -> bool:
    """Whether a ``--group`` is a pattern rather than a name."""
    return any(char in wanted for char in "*?[")


def means(wanted: str, group: str) -> bool:
    """Whether a name or a pattern means a group."""
    return group == wanted or fnmatchcase(group, wanted)
