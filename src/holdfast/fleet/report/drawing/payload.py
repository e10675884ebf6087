"""Data for the script of the page: columns of a group, as text that a page can contain.

**Rules.** The text contains ``DIGITS`` alone, so nothing in it can end a script element, and the
same columns give the same text. Values are integers, 0 <= value < 2**53 after the stated
transform.

**Strategy.** One payload is ``length, JSON head, planes``. The head lists the columns in order
(name, count, width in bytes, whether they are deltas) beside any JSON values (strings live there).
A column of width w is written as w planes: first the lowest byte of every value, then the next
byte. Bytes of one plane have similar values but hardly ever repeat as sequences. So each plane is a
block with its own Huffman codes, and only long matches are used (``Z_FILTERED``).
``page/loader.js`` unpacks a payload and ``page/columns.js`` reads its columns.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import LagRows
from holdfast.fleet.analysis.group.timeline import Timeline

DIGITS = "".join(chr(c) for c in range(ord("#"), ord("~") + 1) if chr(c) != "<")  # 91 of them
_CODES = np.frombuffer(DIGITS.encode("ascii"), np.uint8)
_WEIGHTS = 1 << np.arange(13)
_WIDTHS = (1, 2, 4, 8)
MAX_VALUE = 2**53
HUES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442")
"""Okabe and Ito's set without black."""


def _mix(colour: str, other: int, share: float) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(p + (other - p) * share):02x}" for p in parts)


COLOURS: tuple[str, ...] = (
    *HUES,
    *(_mix(hue, 255, 0.45) for hue in HUES),
    *(_mix(hue, 0, 0.3) for hue in HUES),
)
"""Colours of owners: the hues, then the same ones lighter and darker, so that colour-blind readers
distinguish neighbours. Colour is never the only mark: bars have names where they fit, the legend
and the search single a member out, and every picture has its table."""


def group_payload(history: GroupHistory) -> str:
    """Return the columns of one group for the script (see ``page/timeline.js``)."""
    t, r = history.timeline, history.recorded
    edges, owner, step, gap_ms, counts = _folded(t)
    cause, moved, downtime_ms = _rebalance_of(history)
    causes = tuple(c.replace("_", " ") for c in dict.fromkeys(("", *r.cause)))
    columns: dict[str, npt.ArrayLike] = {
        "edge+": edges,
        "row_topic": t.row_topic,
        "row_number": t.row_partition + 1,  # 0: a connector itself
        "row_segments": counts,
        "seg_owner": owner,
        "seg_step": step,
        "seg_gap": gap_ms,
        "member_identity": t.identities.identity,
        "member_host": t.identities.host,
        "gen_edge+": np.searchsorted(edges, t.generations.at_ms - t.first_ms),
        "gen_number": np.maximum(t.generations.number, 0),
        "gen_members": np.maximum(t.generations.n_members, 0),
        "gen_cause": np.asarray([causes.index(c) for c in cause], dtype=np.int64),
        "gen_moved": moved,
        "gen_downtime_least": downtime_ms[0],
        "gen_downtime_most": downtime_ms[1],
    }
    values = {
        "t0": t.first_ms,
        "topics": t.topics,
        "joint": history.kind.words.joint,
        "members": t.members,
        "identities": t.identities.names,
        "hosts": t.identities.hosts,
        "causes": causes,
    }
    assert len(cause) == len(moved) == len(t.generations.number)
    lag, names = lag_columns(history.lag)
    return pack({**columns, **lag}, {**values, **names})


def _folded(t: Timeline) -> tuple[I64, I64, I64, I64, I64]:
    """Fold gaps into segments: every end is an edge, a generation or the window's end.

    Returns
    -------
    edges : int64[n_edges]
        Milliseconds since the first, ascending.
    owner, step, gap : int64[n]
        0 without an owner, 1 + member; number of edges; milliseconds of the gap at the end.
    counts : int64[n_rows]
        Segments of each row.
    """
    times = np.append(t.generations.at_ms, (t.first_ms, t.last_ms))
    edges = np.unique(times) - t.first_ms
    first = np.zeros(len(t.in_gap), dtype=bool)
    first[t.start[:-1]] = True
    ends = np.zeros(len(t.in_gap), dtype=bool)  # a gap at the end of its owner's segment
    ends[1:] = t.in_gap[1:] & ~t.in_gap[:-1] & ~first[1:] & (t.owner[1:] == t.owner[:-1])
    own = np.flatnonzero(~ends)
    followed = np.append(ends[1:], False)[own]
    tail = np.where(followed, own + 1, own)
    gap_ms = np.where(t.in_gap[tail], t.to_ms[tail] - t.from_ms[tail], 0)
    end = np.searchsorted(edges, t.to_ms[tail] - t.first_ms)
    row = np.searchsorted(t.start, own, side="right") - 1
    step = np.diff(end, prepend=0)
    heads = np.flatnonzero(first[own])
    step[heads] = end[heads]
    owner = t.owner[own].astype(np.int64) + 1
    return edges, owner, step, gap_ms, np.bincount(row, minlength=len(t.row_partition))


def _rebalance_of(history: GroupHistory) -> tuple[list[str], I64, tuple[I64, I64]]:
    """Return cause, moved partitions, and partition-milliseconds of downtime, of each generation.

    Without a rebalance the values are "" and 0; the downtime has a lower and an upper bound.
    """
    r = history.recorded
    index = history.generations.index_of(r.generation, r.at_ms)
    generation_rows = np.full(len(history.generations.number), -1)
    generation_rows[index[index >= 0]] = np.flatnonzero(index >= 0)
    gap = np.maximum(r.counts["n_moved_through_gap"], 0)
    moved = np.append(np.maximum(r.counts["n_moved"], 0) + gap, 0)
    words = np.asarray([*r.cause, ""], dtype=object)[generation_rows].tolist()
    least, most = (
        np.append(np.rint(1000 * np.nan_to_num(bound)), 0).astype(np.int64)[generation_rows]
        for bound in (r.downtime_lower_s, r.downtime_upper_s)
    )
    return [cause.replace("_", " ") for cause in words], moved[generation_rows], (least, most)


def lag_columns(lag: LagRows) -> tuple[dict[str, npt.ArrayLike], dict[str, Any]]:
    """Return columns and names for the page; sorted by topic and partition.

    Returns
    -------
    columns : dict of int[n]
        ``lag_value`` is lag + 1, ``lag_owner`` owner + 1, ``lag_committed`` and ``lag_end`` offset
        + 1, ``lag_seconds`` time lag in whole seconds + 1; 0 for none. ``lag_at_least`` is 1 where
        the time lag is a lower bound.
    values : dict
        ``lag_topics`` and ``lag_owners``.
    """
    (topic, topics), (owner, owners) = lag.topic_codes, lag.owner_codes
    order = np.lexsort((lag.partition, topic))
    at_least = lag.rows.equal("lag_seconds_basis", "at_least")
    seconds = np.rint(np.nan_to_num(lag.seconds, nan=-1.0)).astype(np.int64)
    counts = {
        "lag_value": lag.lag,
        "lag_committed": lag.committed,
        "lag_end": lag.end,
        "lag_seconds": seconds,
    }
    columns: dict[str, npt.ArrayLike] = {
        "lag_topic": topic[order],
        "lag_partition": lag.partition[order],
        "lag_owner": owner[order] + 1,
        "lag_at_least": at_least[order],
        **{name: np.clip(c[order], -1, MAX_VALUE - 2) + 1 for name, c in counts.items()},
    }
    return columns, {"lag_topics": topics, "lag_owners": owners}


# Packing


def pack(columns: Mapping[str, npt.ArrayLike], values: Mapping[str, Any] | None = None) -> str:
    """Pack integer columns and a few JSON values into text.

    Parameters
    ----------
    columns : mapping of str to int[n]
        Columns may differ in length. A name ending in ``+`` is ascending and stored as deltas.
    values : mapping, optional
        JSON values that travel in the head.

    Returns
    -------
    str
        Gzip in ``DIGITS``.

    Raises
    ------
    ValueError
        If a value is negative or 2**53 and more.
    """
    head: list[list[object]] = []
    planes: list[bytes] = []
    for name, column in columns.items():
        ascending = name.endswith("+")
        numbers = np.asarray(column, dtype=np.int64)
        stored = np.diff(numbers, prepend=np.int64(0)) if ascending else numbers
        width, data = _planes(name, stored)
        head.append([name.rstrip("+"), len(numbers), width, int(ascending)])
        planes += data
    text = json.dumps({"columns": head, "values": dict(values or {})}, separators=(",", ":"))
    packed = text.encode("ascii")
    return _compressed([len(packed).to_bytes(4, "little") + packed, *planes])


def pack_text(text: str) -> str:
    """Compress text and encode it as digits."""
    return to_digits(gzip.compress(text.encode(), 9, mtime=0))


def _compressed(parts: Sequence[bytes]) -> str:
    """Compress parts into one gzip stream, each in blocks of its own."""
    stream = zlib.compressobj(9, zlib.DEFLATED, 31, 8, zlib.Z_FILTERED)
    done = b"".join(stream.compress(part) + stream.flush(zlib.Z_BLOCK) for part in parts)
    return to_digits(done + stream.flush())


def pack_values(values: Mapping[str, Any]) -> str:
    """Encode a few JSON values without compression: they are read first."""
    return to_digits(json.dumps(dict(values)).encode("ascii"))


def to_digits(data: bytes) -> str:
    """Encode bytes as text: 8 bits take 1.23 characters, compared with 1.33 of base64.

    13 bits, the lowest first, are a number of two digits. An odd last digit says that the last
    byte is of filling bits alone.
    """
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    filled = np.concatenate([bits, np.zeros(-len(bits) % 13, np.uint8)]).reshape(-1, 13)
    pairs = np.stack(np.divmod(filled @ _WEIGHTS, 91), axis=1)
    odd = DIGITS[0] if filled.size - len(bits) >= 8 else ""
    return str(_CODES[pairs].tobytes(), "ascii") + odd


def _planes(name: str, numbers: npt.NDArray[np.int64]) -> tuple[int, list[bytes]]:
    if len(numbers) == 0:
        return 1, []
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= MAX_VALUE:
        raise ValueError(f"column {name}: values {low} to {high}, expected 0 to 2**53 - 1")
    width = next(w for w in _WIDTHS if high < 1 << (8 * w))
    bytes_of = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    return width, [bytes_of[:, plane].tobytes() for plane in range(width)]
