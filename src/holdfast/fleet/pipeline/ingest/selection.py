"""Choose the groups to read: by name, by pattern, or all but those of Spark's own connector.

**Rules.** The group of a record is read from the bytes of its key, before the record is decoded:
every key has the group behind its type. So a record that does not parse is chosen by its group
too. A name is compared as bytes, a pattern with the text.

**Strategy.** The same function chooses in a batch and in a stream. The usual choice, all groups,
reads twelve bytes of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask
from holdfast.core.names import SPARK_GROUPS, is_pattern, means
from holdfast.core.wire.many.offsets_batch import Binary
from holdfast.core.wire.many.ragged import gather, padded
from holdfast.core.wire.one.topic_ids import offsets_partition
from holdfast.fleet.pipeline.ingest.decode import binary_column

_COMMON: Final = b"spark-kafka-"
_NAME_AT: Final = 4
"""Behind the type and the length of the name, an int16 each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The groups to read: names, or patterns with ``*`` and ``?``; empty for all.

    ``all_groups`` includes those of Spark's connector.
    """

    groups: Sequence[str] = ()
    all_groups: bool = False

    def keep(self, keys: pa.Array) -> Mask | None:
        """Return which records belong to the groups, by their keys (binary); None: all of them."""
        if self.groups:
            return self._is_named(group_names(binary_column(keys)))
        return None if self.all_groups else _not_sparks(keys, _NAME_AT)

    def log_partitions(self, n_partitions: int) -> frozenset[int] | None:
        """Return partitions of the offsets topic that store the groups; None: any of them may."""
        if not self.groups or any(is_pattern(name) for name in self.groups):
            return None
        return frozenset(offsets_partition(name, n_partitions) for name in self.groups)

    def keep_groups(self, names: pa.Array) -> Mask | None:
        """Return which of some groups, given as bytes, are chosen; None: all of them."""
        if self.groups:
            return self._is_named(names)
        return None if self.all_groups else _not_sparks(names, 0)

    def _is_named(self, names: pa.Array) -> Mask:
        coded = names.dictionary_encode()
        plain = {name.encode() for name in self.groups}  # a name may look like a pattern
        patterns = [name for name in self.groups if is_pattern(name)]
        hit = [
            name in plain or any(means(one, name.decode("utf-8", "replace")) for one in patterns)
            for name in coded.dictionary.to_pylist()
        ]
        found: Mask = np.array(hit, bool)[coded.indices.to_numpy()]
        return found


def _not_sparks(keys: pa.Array, name_at: int) -> Mask | None:
    """Return which keys are not of Spark's own groups; the name begins at byte ``name_at``."""
    head = pc.binary_slice(keys, name_at, name_at + len(_COMMON))
    suspect = pc.fill_null(pc.equal(head, pa.scalar(_COMMON)), False)
    if not pc.any(suspect).as_py():
        return None
    hit = np.zeros(len(keys), bool)
    for name in SPARK_GROUPS:
        prefix = name.encode()
        head = pc.binary_slice(keys, name_at, name_at + len(prefix))
        same = pc.fill_null(pc.equal(head, pa.scalar(prefix)), False)
        hit |= same.to_numpy(zero_copy_only=False)
    return ~hit


def group_names(keys: Binary) -> pa.Array:
    """Return the group of each record as bytes; of an odd key the bytes at the group's position.

    A null key, and one too short for a group, gives an empty name.
    """
    start = keys.start.astype(np.int64)
    low = int(start[0])
    data = padded(keys.data[low : int(start[-1])])
    begin, size = start[:-1] - low, np.diff(start)
    if keys.valid is not None:
        size = np.where(keys.valid, size, 0)
    said = data[begin + 2].astype(np.int64) << 8 | data[begin + 3]
    length: I64 = np.clip(np.minimum(said, size - _NAME_AT), 0, None)
    text, starts = gather(data, begin + _NAME_AT, length)
    buffers = [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.binary(), len(length), buffers)
