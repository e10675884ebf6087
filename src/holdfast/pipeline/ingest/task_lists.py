"""Lists of tasks as columns: which member has which number under which name.

**Rules.** No loop per member. Names are compared as text: their ranks are those of their UTF-8
bytes, which is the order of Python's strings too.

**Strategy.** Sets of tasks are sorted int64 keys of (member, name, number), so that union and
difference are NumPy's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.model.columns import I64, starts
from holdfast.model.partitions import TopicPartitions
from holdfast.pipeline.arrow_types import ArrowColumn
from holdfast.pipeline.ingest.arrow_columns import ints, items, text
from holdfast.pipeline.ingest.generations import new_runs
from holdfast.wire.many.columns import Column

_SHIFT = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskLists:
    """Lists of numbers, each of one member and under one name.

    Parameters
    ----------
    member : int64[n]
        Whose list it is.
    name : string[n]
        Connector, kind or subtopology.
    start : int64[n + 1]
        Where each list begins.
    number : int64[start[n]]
        Tasks or resources.
    """

    member: I64
    name: ArrowColumn
    start: I64
    number: I64


Tagged: TypeAlias = Iterable[tuple[int, TopicPartitions | None]]
"""Lists that were read one by one, with their members."""


def listed(column: Column, member: I64, name: str, numbers: str) -> TaskLists:
    """A column of lists of (name, numbers), one row for each of ``member``."""
    outer = items(column)
    inner = items(outer.columns[numbers])
    return TaskLists(
        member=np.repeat(member, np.diff(outer.start)),
        name=text(outer.columns[name]),
        start=inner.start,
        number=ints(inner.columns[""]).astype(np.int64),
    )


def gathered(tagged: Tagged) -> TaskLists:
    """The same of members that were read one by one."""
    rows = [(member, *one) for member, lists in tagged for one in lists or ()]
    return TaskLists(
        member=np.array([member for member, _, _ in rows], np.int64),
        name=pa.array([name for _, name, _ in rows], pa.string()),
        start=starts(np.array([len(numbers) for _, _, numbers in rows], np.int64)),
        number=np.array([number for _, _, numbers in rows for number in numbers], np.int64),
    )


def joined(parts: Sequence[TaskLists]) -> TaskLists:
    """The lists of all parts."""
    size = np.concatenate([np.diff(part.start) for part in parts])
    return TaskLists(
        member=np.concatenate([part.member for part in parts]),
        name=pa.chunked_array([part.name for part in parts], pa.string()).combine_chunks(),
        start=starts(size),
        number=np.concatenate([part.number for part in parts]),
    )


def ranks(names: ArrowColumn) -> tuple[I64, list[str]]:
    """Each name's place among the sorted different names, and these."""
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    coded = names.dictionary_encode()
    different: list[str] = coded.dictionary.to_pylist()
    order = sorted(range(len(different)), key=different.__getitem__)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found: I64 = rank[coded.indices.to_numpy()]
    return found, [different[i] for i in order]


def dense(*columns: I64) -> I64:
    """The place of each row among the sorted different rows."""
    order = np.lexsort(columns[::-1])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(new_runs(*(column[order] for column in columns))) - 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keys:
    """Sets of tasks that can be compared with each other.

    Parameters
    ----------
    sets : list of int64[n]
        Keys of each set, sorted, each once.
    member, rank : int64[n]
        Of what the upper half of a key names.
    names : list of str
        By rank.
    """

    sets: list[I64]
    member: I64
    rank: I64
    names: list[str]

    def members(self, keys: I64) -> I64:
        """Whose each key is."""
        found: I64 = self.member[keys >> 32]
        return found

    def lists(self, keys: I64) -> tuple[I64, I64, I64]:
        """Member, rank of the name and number of each of some sorted keys."""
        place = keys >> 32
        return self.member[place], self.rank[place], (keys & 0xFFFFFFFF) - _SHIFT


def keyed(*sets: TaskLists) -> Keys:
    """Keys of several sets, in the order of member, name and number."""
    whole = joined(sets)
    rank, names = ranks(whole.name)
    place = dense(whole.member, rank)
    member, of_rank = np.empty((2, int(place.max(initial=-1)) + 1), np.int64)
    member[place], of_rank[place] = whole.member, rank
    key = (np.repeat(place, np.diff(whole.start)) << 32) + whole.number + _SHIFT
    ends = np.cumsum([int(one.start[-1]) for one in sets])
    return Keys(
        sets=[np.unique(part) for part in np.split(key, ends[:-1])],
        member=member,
        rank=of_rank,
        names=names,
    )
