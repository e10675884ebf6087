"""The offsets of a commit, with metadata and epoch.

**Rules.** A position is a value with its note and its epoch, never a bare number. The note and the
epoch go to the broker with the offset, or not at all.

References: KIP-320 (the epoch); OffsetCommit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.core.model.partitions import Resource


class OffsetToCommit(NamedTuple):
    """The committed offset of one partition.

    Attributes
    ----------
    offset : int
        The next offset to read.
    note : str
        Metadata of the application, stored with the offset.
    epoch : int
        Epoch of the leader that gave the record, -1 for none (KIP-320).
    """

    offset: int
    note: str = ""
    epoch: int = -1


Offsets = Mapping[Resource, OffsetToCommit]
"""The offsets of a commit, by partition."""
