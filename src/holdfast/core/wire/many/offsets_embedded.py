"""Reading the subscriptions and assignments in the records of classic groups into columns.

A group of protocol type ``consumer`` carries a ConsumerProtocolSubscription and a
ConsumerProtocolAssignment for each member; their version table is in
:mod:`holdfast.core.wire.layouts.consumer_protocol`. Other protocol types stay bytes.

**Rules.** A message that does not parse gives no values; its row is listed with a reason and a
position. The record around the message is good all the same. A version above 3 is read as 3, and a
version below 0 is refused. Bytes after the last known field are ignored.

**Strategy.** Messages of one version are read together as one layout. If there are several
versions, the fields that a later version added are read from the messages that have them.

References: KIP-429 (owned partitions), KAFKA-13715 (generation), KIP-881 (rack).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.core.model.columns import I64, U8, Mask
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, decode_subscription
from holdfast.core.wire.layouts.offsets_schemas import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    Default,
    Field,
    Schema,
    layout,
)
from holdfast.core.wire.many.columnar import Program, read
from holdfast.core.wire.many.columns import ABSENT, Columns, Numbers, Slices, spread
from holdfast.core.wire.many.programs import message_program, program_of
from holdfast.core.wire.many.ragged import Cursor
from holdfast.core.wire.one.reasons import reason_code
from holdfast.errors import WireError

_INT16: Final = np.dtype(">i2")
_N_PROBES: Final = 64  # messages whose versions are checked first
_DEFAULTS: dict[str, Default] = {"generationId": -1, "userData": None, "rackId": None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """Messages of one kind."""

    columns: Columns  # fields by Kafka's names, n rows each; defaults where a message was not read
    version: I64  # int64[n]: version that was written, -1 where a message was not read
    unreadable: Mask
    # uint8[n]: why, as an index into :data:`holdfast.core.wire.one.reasons.REASONS`; 0 where it
    # parses.
    reason: U8
    position: I64  # int64[n]: byte of the message at which reading failed; 0 where it parses


def read_assignments(messages: Slices, wanted: Mask) -> Messages:
    """Read many ConsumerProtocolAssignments.

    Parameters
    ----------
    messages : Slices Messages of n members. wanted : bool[n]
        Members of protocol type ``consumer``; an empty message is not read.

    Returns
    -------
    Messages
        With ``assignedPartitions`` and ``userData``.
    """
    return _read(CONSUMER_ASSIGNMENT, messages, wanted)


def read_subscriptions(messages: Slices, wanted: Mask) -> Messages:
    """Read many ConsumerProtocolSubscriptions; parameters as of :func:`read_assignments`.

    Returns
    -------
    Messages
        With ``topics``, ``userData``, ``ownedPartitions``, ``generationId`` and ``rackId``.
    """
    return _read(CONSUMER_SUBSCRIPTION, messages, wanted)


def _read(schema: Schema, messages: Slices, wanted: Mask) -> Messages:
    rows = np.flatnonzero(wanted & (messages.size > 0))
    columns, version, bad = _read_rows(schema, messages, rows)
    unreadable = np.zeros(len(messages), np.bool_)
    unreadable[rows[bad]] = True
    reason, position = _explain(schema, messages, rows[bad])
    if bad.any():
        rows = rows[~bad]
        columns, version, bad = _read_rows(schema, messages, rows)
        assert not bad.any()
    all_versions = np.full(len(messages), -1, np.int64)
    all_versions[rows] = version
    return Messages(
        columns=_at_rows(columns, rows, len(messages)),
        version=all_versions,
        unreadable=unreadable,
        reason=reason,
        position=position,
    )


def _explain(schema: Schema, messages: Slices, rows: I64) -> tuple[U8, I64]:
    """Return why messages do not parse, by the scalar form: reason and position, for all rows."""
    decode = decode_subscription if schema is CONSUMER_SUBSCRIPTION else decode_assignment
    reason, position = np.zeros(len(messages), np.uint8), np.zeros(len(messages), np.int64)
    data, start = messages.take(rows).gather()
    for row, low, high in zip(rows.tolist(), start[:-1].tolist(), start[1:].tolist(), strict=True):
        try:
            decode(data[low:high].tobytes())
        except WireError as error:
            reason[row], position[row] = reason_code(error), error.position
        else:
            raise AssertionError("the batch form refused what the scalar form reads")
    return reason, position


def _read_rows(schema: Schema, messages: Slices, rows: I64) -> tuple[Columns, I64, Mask]:
    """Read the messages of ``rows``: return columns, versions, and which of them fail."""
    begin = messages.begin[rows]
    end = begin + messages.size[rows]
    some = Cursor(messages.data, begin[:: len(rows) // _N_PROBES + 1], end).peek(_INT16)
    if len(some) and some[0] >= 0 and not np.count_nonzero(some != some[0]):
        cursor = Cursor(messages.data, begin, end)
        columns, version = _read_alike(schema, cursor, int(some[0]))
        if not np.count_nonzero(version != some[0]):
            return columns, version, cursor.overrun()
    return _read_mixed(schema, Cursor(messages.data, begin, end))


def _read_alike(schema: Schema, cursor: Cursor, version: int) -> tuple[Columns, I64]:
    """Read messages as if all had one version; also return the version that each states."""
    known = min(version, schema.max_version)
    columns = read(message_program(schema, known), cursor)
    written = columns.pop("version")
    assert isinstance(written, Numbers)
    none = np.zeros(0, np.int64)
    for since, fields in _layers(schema)[known + 1 :]:
        later = read(_layer_program(fields, since), Cursor(cursor.data, none, none))
        columns |= _at_rows(later, none, len(cursor.bad))
    return columns, written.values.astype(np.int64)


def _read_mixed(schema: Schema, cursor: Cursor) -> tuple[Columns, I64, Mask]:
    """Read messages of many versions, layer by layer."""
    version = cursor.take(_INT16).astype(np.int64)
    cursor.bad |= version < 0
    columns: Columns = {}
    for since, fields in _layers(schema):
        if fields:
            columns |= _read_since(fields, since, cursor, version)
    return columns, version, cursor.overrun()


def _layers(schema: Schema) -> list[tuple[int, tuple[Field, ...]]]:
    """Return fields by the version that introduced them."""
    return [
        (since, tuple(field for field in schema.fields if field.since == since))
        for since in range(schema.max_version + 1)
    ]


def _layer_program(fields: tuple[Field, ...], since: int) -> Program:
    return program_of(layout(fields, since, False), since)


def _read_since(fields: tuple[Field, ...], since: int, cursor: Cursor, version: I64) -> Columns:
    """Read fields that exist from one version on."""
    program = _layer_program(fields, since)
    if version.min(initial=since) >= since:
        return read(program, cursor)
    rows = np.flatnonzero(version >= since)
    child = Cursor(cursor.data, cursor.pos[rows], cursor.end[rows])
    columns = read(program, child)
    cursor.pos[rows] = child.pos
    cursor.absorb(child, rows)
    return _at_rows(columns, rows, len(version))


def _at_rows(columns: Columns, rows: I64, n_rows: int) -> Columns:
    """Return columns of some rows, spread over all, with the defaults between them."""
    index = np.full(n_rows, ABSENT, np.int64)
    index[rows] = np.arange(len(rows))
    return {n: spread(c, index, _DEFAULTS.get(n, ())) for n, c in columns.items()}
