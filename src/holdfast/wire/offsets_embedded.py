"""What the members of classic groups wrote into their group's record, as columns.

A group of protocol type ``consumer`` carries a ConsumerProtocolSubscription and a
ConsumerProtocolAssignment for each member; their version table stands in
:mod:`holdfast.wire.consumer_protocol`. Other protocol types stay bytes.

**Rules.** A message that does not parse is told by its row and gives nothing; its record is good
all the same. Versions above 3 are read as 3 and what follows is ignored; below 0 is refused.

**Strategy.** All messages are read together; the fields that a later version brought are read
from the messages that have them.

References
----------
KIP-429 (owned partitions), KAFKA-13715 (generation), KIP-881 (rack).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.model.columns import I64, Mask
from holdfast.wire.columns import ABSENT, Columns, Slices, spread
from holdfast.wire.cursor import Cursor
from holdfast.wire.lockstep import read
from holdfast.wire.offsets_schemas import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    Default,
    Field,
    Schema,
    layout,
)
from holdfast.wire.plans import plan_of

_INT16: Final = np.dtype(">i2")
_DEFAULTS: dict[str, Default] = {"generationId": -1, "userData": None, "rackId": None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """Messages of one kind.

    Parameters
    ----------
    columns : dict of name to Column
        Fields by Kafka's names, n rows each; defaults where a message was not read.
    version : int64[n]
        Version that was written, -1 where a message was not read.
    unreadable : bool[n]
        Messages that do not parse.
    """

    columns: Columns
    version: I64
    unreadable: Mask


def read_assignments(messages: Slices, wanted: Mask) -> Messages:
    """Read many ConsumerProtocolAssignments.

    Parameters
    ----------
    messages : Slices
        Of n members.
    wanted : bool[n]
        Members of protocol type ``consumer``; an empty message is not read.

    Returns
    -------
    Messages
        With ``assignedPartitions`` and ``userData``.

    References
    ----------
    KIP-429.
    """
    return _read(CONSUMER_ASSIGNMENT, messages, wanted)


def read_subscriptions(messages: Slices, wanted: Mask) -> Messages:
    """Read many ConsumerProtocolSubscriptions; parameters as of :func:`read_assignments`.

    Returns
    -------
    Messages
        With ``topics``, ``userData``, ``ownedPartitions``, ``generationId`` and ``rackId``.

    References
    ----------
    KIP-429, KAFKA-13715, KIP-881.
    """
    return _read(CONSUMER_SUBSCRIPTION, messages, wanted)


def _read(schema: Schema, messages: Slices, wanted: Mask) -> Messages:
    rows = np.flatnonzero(wanted & (messages.size > 0))
    columns, version, bad = _read_rows(schema, messages, rows)
    unreadable = np.zeros(len(messages), np.bool_)
    unreadable[rows[bad]] = True
    if bad.any():
        rows = rows[~bad]
        columns, version, bad = _read_rows(schema, messages, rows)
        assert not bad.any()
    index = np.full(len(messages), ABSENT, np.int64)
    index[rows] = np.arange(len(rows))
    all_versions = np.full(len(messages), -1, np.int64)
    all_versions[rows] = version
    return Messages(
        columns={n: spread(c, index, _DEFAULTS.get(n, ())) for n, c in columns.items()},
        version=all_versions,
        unreadable=unreadable,
    )


def _read_rows(schema: Schema, messages: Slices, rows: I64) -> tuple[Columns, I64, Mask]:
    begin = messages.begin[rows]
    cursor = Cursor(messages.data, begin, begin + messages.size[rows])
    version = cursor.take(_INT16).astype(np.int64)
    cursor.bad |= version < 0
    columns: Columns = {}
    for since in range(schema.max_version + 1):
        fields = tuple(field for field in schema.fields if field.since == since)
        if fields:
            columns |= _read_since(fields, since, cursor, version)
    return columns, version, cursor.overrun()


def _read_since(fields: tuple[Field, ...], since: int, cursor: Cursor, version: I64) -> Columns:
    """Fields that are there from one version on."""
    plan = plan_of(layout(fields, since, False), since)
    if not len(version) or version.min() >= since:
        return read(plan, cursor)
    rows = np.flatnonzero(version >= since)
    child = Cursor(cursor.data, cursor.pos[rows], cursor.end[rows])
    columns = read(plan, child)
    cursor.pos[rows] = child.pos
    cursor.absorb(child, rows)
    index = np.full(len(version), ABSENT, np.int64)
    index[rows] = np.arange(len(rows))
    return {n: spread(c, index, _DEFAULTS.get(n, ())) for n, c in columns.items()}
