"""The three designs of the document "Incremental Cooperative Rebalancing", by number and by name.

References: Incremental Cooperative Rebalancing, Designs I, II and III.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Design(IntEnum):
    """The three designs of the document; the number is the version on the wire."""

    SIMPLE = 1
    DEFERRED = 2
    INCREMENTAL = 3


NAMES: Mapping[Design, str] = {
    Design.SIMPLE: "holdfast-simple",
    Design.DEFERRED: "holdfast-deferred",
    Design.INCREMENTAL: "holdfast-incremental",
}
"""Protocol names of the designs."""
