"""What a commit says of partitions, as every member of ours hands it on.

**Rules.** A position is a value with its note and its epoch, never a number with something hung on
it. The note and the epoch go to the broker with the offset, or not at all.

References: KIP-320 (the epoch); OffsetCommit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.core.model.partitions import Resource


class OffsetToCommit(NamedTuple):
    """What a commit says of one partition.

    Attributes
    ----------
    offset : int
        The next offset to read.
    note : str
        The application's, kept beside it.
    epoch : int
        Epoch of the leader that gave the record, -1 for none (KIP-320).
    """

    offset: int
    note: str = ""
    epoch: int = -1


Offsets = Mapping[Resource, OffsetToCommit]
"""What a commit says, by partition."""
