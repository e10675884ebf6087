"""Successive generations of many groups as columns: the input of every later step.

**Rules.** Rows of ``head`` are sorted by group and then by position in the log. Rows of
``members`` point to a row of ``head``, and rows of ``owned`` to a row of ``members``. A row marked
``context`` was reported in an earlier batch and is only compared with; it is not reported again.

**Strategy.** :mod:`holdfast.fleet.pipeline.ingest.decode` reads classic records into this form,
and :mod:`holdfast.fleet.pipeline.history.consumer_groups` folds KIP-848 records into it. A stream
keeps its state in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import (
    ACTIVE,
    FAILED,
    ROLES,
    SHARED,
    SOURCE,
    STANDBY,
    WARMUP,
    GroupKind,
    kind_of,
)
from holdfast.core.model.columns import I64, Mask
from holdfast.fleet.columnar import gather, ints, list_parts, replaced, row_starts
from holdfast.fleet.tables.columns.schemas import arrow_schema, from_columns

STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"

HEAD: Final = arrow_schema("generation_heads")
MEMBER_ROWS: Final = arrow_schema("generation_members")
OWNED_ROWS: Final = arrow_schema("generation_owned")


TaskTopics: TypeAlias = dict[tuple[int, str], set[str]]
"""Topics that the tasks of a subtopology read, by row of the generation and subtopology."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generations:
    """Generations of one or many groups."""

    head: pa.Table  # HEAD: one row per generation, sorted by (group, log_partition, log_offset)
    members: pa.Table  # MEMBER_ROWS: ``row`` points into ``head`` and ascends
    # OWNED_ROWS: ``member`` points into ``members`` and ascends; a topic occurs once per member and
    # role.
    owned: pa.Table

    @classmethod
    def empty(cls) -> Generations:
        """Return an empty value."""
        return cls(
            head=HEAD.empty_table(),
            members=MEMBER_ROWS.empty_table(),
            owned=OWNED_ROWS.empty_table(),
        )

    @property
    def n_rows(self) -> int:
        """Number of generations."""
        n: int = self.head.num_rows
        return n

    def take(self, rows: I64, *, context: bool | None = None) -> Generations:
        """Return the generations at ``rows`` (indices), with their members, in that order."""
        order = np.asarray(rows, np.int64)
        head = self.head.take(pa.array(order))
        if context is not None:
            head = replaced(head, context=np.full(len(order), context))
        member_start = row_starts(ints(self.members, "row"), self.n_rows)
        picked, row = gather(member_start, order)
        members = replaced(self.members.take(pa.array(picked)), row=row)
        owned_start = row_starts(ints(self.owned, "member"), self.members.num_rows)
        owned_rows, member = gather(owned_start, picked)
        owned = replaced(self.owned.take(pa.array(owned_rows)), member=member)
        return Generations(head=head, members=members, owned=owned)

    def cut(self, first: I64) -> list[Generations]:
        """Cut into parts that begin with the rows ``first``, ascending from 0.

        Cost: one pass, while :meth:`take` of each part would read all rows each time.
        """
        edges = np.append(first, self.n_rows)
        member_row, owned_member = ints(self.members, "row"), ints(self.owned, "member")
        member = np.searchsorted(member_row, edges)
        owned = np.searchsorted(owned_member, member)
        of_row = replaced(self.members, row=member_row - np.repeat(edges[:-1], np.diff(member)))
        of_member = owned_member - np.repeat(member[:-1], np.diff(owned))
        tables = (
            (self.head, edges),
            (of_row, member),
            (replaced(self.owned, member=of_member), owned),
        )
        parts = []
        for i in range(len(first)):
            head, members, owned_rows = (
                table.slice(int(at[i]), int(at[i + 1] - at[i])) for table, at in tables
            )
            parts.append(Generations(head=head, members=members, owned=owned_rows))
        return parts

    def reads(self) -> TaskTopics:
        """Return topics that each subtopology of Streams groups reads, by row and subtopology."""
        known = (self.roles == SOURCE) & np.asarray(self.owned["reader"].is_valid())
        picked = self.owned.filter(pa.array(known))
        row = ints(self.members, "row")[ints(picked, "member")]
        found: TaskTopics = {}
        columns = (picked["reader"].to_pylist(), picked["topic"].to_pylist())
        for at, reader, topic in zip(row.tolist(), *columns, strict=True):
            found.setdefault((at, reader), set()).add(topic)
        return found

    @property
    def roles(self) -> I64:
        """Role of each row of ``owned``."""
        return np.clip(ints(self.owned, "role"), ACTIVE, FAILED)

    def exclusive(self) -> Generations:
        """Return the generations with only what one member alone owns: rows of role ACTIVE."""
        alone = self.roles == ACTIVE
        if bool(alone.all()):
            return self
        owned = self.owned.filter(pa.array(alone))
        return Generations(head=self.head, members=self.members, owned=owned)

    def sorted(self) -> Generations:
        """Return the generations sorted by (group, position in the log)."""
        keys = [("group", "ascending"), ("log_partition", "ascending"), ("log_offset", "ascending")]
        order = pc.sort_indices(self.head, sort_keys=keys).to_numpy()
        if len(order) < 2 or bool(np.all(np.diff(order.astype(np.int64)) == 1)):
            return self
        return self.take(order)


def concat(parts: Sequence[Generations]) -> Generations:
    """Concatenate generations, with their pointers adjusted."""
    if len(parts) == 1:
        return parts[0]
    return joined([(part.head, part.members, part.owned) for part in parts])


def joined(parts: Sequence[Sequence[pa.Table]]) -> Generations:
    """Join head, members and owned rows of successive parts; pointers of each begin at 0.

    Raises ValueError if a pointer names a row that its part does not have.
    """
    sizes = np.asarray([[table.num_rows for table in part] for part in parts], np.int64)
    head, members, owned = (
        pa.concat_tables([schema.empty_table(), *(part[i] for part in parts)])
        for i, schema in enumerate((HEAD, MEMBER_ROWS, OWNED_ROWS))
    )
    n_heads, n_members, n_owned = sizes.reshape(-1, 3).T
    row = _shifted(ints(members, "row"), n_members, n_heads, "row")
    member = _shifted(ints(owned, "member"), n_owned, n_members, "member")
    return Generations(
        head=head, members=replaced(members, row=row), owned=replaced(owned, member=member)
    )


def _shifted(pointer: I64, n_rows: I64, n_targets: I64, name: str) -> I64:
    """Return pointers of successive parts as pointers into all rows that they point to."""
    within = np.repeat(n_targets, n_rows)
    if ((pointer < 0) | (pointer >= within)).any():
        raise ValueError(f"a missing {name}")
    return pointer + np.repeat(np.cumsum(n_targets) - n_targets, n_rows)


def marked(head: pa.Table, predicate: Callable[[GroupKind, str | None], bool]) -> Mask:
    """Return which rows of ``head`` satisfy ``predicate`` of kind and protocol, bool[n].

    It is called once for each kind and protocol.
    """
    code = np.zeros(head.num_rows, np.int64)
    names: list[tuple[str | None, ...]] = [()]
    for column in ("group_type", "protocol_type", "protocol"):
        coded = pa.chunked_array(head[column]).combine_chunks().dictionary_encode("encode")
        values = coded.dictionary.to_pylist()
        both = code * len(values) + coded.indices.to_numpy().astype(np.int64)
        seen, code = np.unique(both, return_inverse=True)
        pairs = (divmod(one, len(values)) for one in seen.tolist())
        names = [(*names[before], values[last]) for before, last in pairs]
    found = [predicate(kind_of(str(one), two, three), three) for one, two, three in names]
    return np.array(found, np.bool_)[code]


def generation_tables(gens: Generations) -> dict[str, pa.Table]:
    """Return the tables ``generations``, ``members`` and ``assignments``, without context rows."""
    n_rows, n_members = gens.n_rows, gens.members.num_rows
    member_row, owned_member = ints(gens.members, "row"), ints(gens.owned, "member")
    starts, _ = list_parts(gens.owned["partitions"])
    role, size = gens.roles, np.diff(starts)

    def of_members(counted: Mask) -> I64:
        given = np.bincount(owned_member[counted], size[counted], n_members)
        return given.astype(np.int64)

    per_member = of_members((role == ACTIVE) | (role == SHARED))
    per_row = np.bincount(member_row, of_members(role == ACTIVE), n_rows).astype(np.int64)
    per_row += shared_partitions(gens)
    new = ~gens.head["context"].to_numpy()
    head = {name: gens.head[name] for name in gens.head.column_names}
    head["n_members"] = pa.array(np.bincount(member_row, minlength=n_rows).astype(np.int32))
    head["n_partitions"] = pa.array(per_row)
    members = {name: gens.members[name] for name in gens.members.column_names}
    for name in ("group", "generation", "group_type", "timestamp"):
        members[name] = gens.head[name].take(pa.array(member_row))
    members["n_partitions"] = pa.array(per_member)
    members["n_standby"] = pa.array(of_members(role == STANDBY))
    members["n_warmup"] = pa.array(of_members(role == WARMUP))
    return {
        "generations": _filter(from_columns("generations", head), new),
        "members": _filter(from_columns("members", members), new[member_row]),
        "assignments": assignment_table(gens),
    }


def shared_partitions(gens: Generations) -> I64:
    """Count the different partitions that the members of each row share, int64[n_rows]."""
    rows = np.flatnonzero(gens.roles == SHARED)
    if not len(rows):
        return np.zeros(gens.n_rows, np.int64)
    owned = gens.owned.take(pa.array(rows))
    starts, partition = list_parts(owned["partitions"])
    at = np.repeat(np.arange(len(rows)), np.diff(starts))
    topic = owned["topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    row = ints(gens.members, "row")[ints(owned, "member")]
    different = np.unique(np.stack([row[at], topic[at], partition]), axis=1)
    return np.bincount(different[0], minlength=gens.n_rows).astype(np.int64)


def assignment_table(gens: Generations) -> pa.Table:
    """Return the table ``assignments`` of rows that are not context."""
    member = ints(gens.owned, "member")
    row = ints(gens.members, "row")[member]
    columns = {name: gens.owned[name] for name in ("topic", "partitions")}
    columns["member_id"] = gens.members["member_id"].take(pa.array(member))
    for name in ("group", "generation", "timestamp"):
        columns[name] = gens.head[name].take(pa.array(row))
    role = gens.roles
    columns["role"] = pa.array((*ROLES, "", "")).take(pa.array(role))
    starts, _ = list_parts(gens.owned["partitions"])
    keep = ~gens.head["context"].to_numpy()[row] & (np.diff(starts) > 0) & (role < len(ROLES))
    return _filter(from_columns("assignments", columns), keep)


def _filter(table: pa.Table, mask: Mask) -> pa.Table:
    return table if bool(mask.all()) else table.filter(pa.array(mask))
