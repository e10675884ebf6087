"""The JSON snapshot of a group, read with an error for every wrong value.

**Rules.** Unknown keys are refused by name. A wrong value raises :class:`ModelError` whose text
begins with the path of the value. Impossible *claims* are not errors: they are data of the group,
dropped and counted later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.model.lag import MAX_LAG, NO_COMMIT, lag_of_columns
from holdfast.core.model.limits import INT32_MAX, MOST_PARTITIONS, NO_GENERATION
from holdfast.core.model.partitions import Resource, TopicPartitions, grouped
from holdfast.errors import ModelError

_TOP = ("partitions", "racks", "lags", "offsets", "auto_offset_reset", "members")
_MEMBER = ("id", "topics", "owned", "generation", "instance_id", "rack")
_OFFSET = ("begin", "end", "committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """One member of the snapshot."""

    member_id: str
    topics: tuple[str, ...]
    owned: TopicPartitions
    generation: int
    instance_id: str | None
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot in which every value has been checked."""

    partitions: dict[str, int]
    racks: dict[str, list[list[str]]] | None
    lags: dict[str, list[int]] | None
    members: tuple[MemberRow, ...]


def read_snapshot(snapshot: object, most_partitions: int = MOST_PARTITIONS) -> Snapshot:
    """Check a parsed JSON snapshot.

    Parameters
    ----------
    most_partitions : int
        Topic-partitions that the snapshot may have in all: a few bytes of JSON can name any number.

    Raises
    ------
    ModelError
        The error names the path, what was found and what was expected.
    """
    top = _mapping(snapshot, "snapshot")
    _refuse_unknown(top, _TOP, "snapshot")
    for key in ("partitions", "members"):
        if key not in top:
            raise ModelError("missing", column=key)
    partitions = {
        name: _integer(count, f"partitions.{name}", low=0, high=2**31 - 2)
        for name, count in _mapping(top["partitions"], "partitions").items()
    }
    n_tps = sum(partitions.values())
    if n_tps > most_partitions:
        raise ModelError(
            f"{n_tps} topic-partitions in all, expected at most {most_partitions}; a caller of the "
            "library can allow more (most_partitions)",
            column="partitions",
        )
    members = tuple(
        _member(row, f"members[{i}]") for i, row in enumerate(_list(top["members"], "members"))
    )
    seen: dict[str, int] = {}
    for i, member in enumerate(members):
        if seen.setdefault(member.member_id, i) != i:
            text = f"{member.member_id!r} is also the id of members[{seen[member.member_id]}]"
            raise ModelError(text, column=f"members[{i}].id")
    return Snapshot(
        partitions=partitions,
        racks=_racks(top.get("racks"), partitions),
        lags=_lags(top, partitions),
        members=members,
    )


def _member(value: object, path: str) -> MemberRow:
    row = _mapping(value, path)
    _refuse_unknown(row, _MEMBER, path)
    for key in ("id", "topics"):
        if key not in row:
            raise ModelError("missing", column=f"{path}.{key}")
    topics = _list(row["topics"], f"{path}.topics")
    owned = _list(row.get("owned") or [], f"{path}.owned")
    generation = row.get("generation")
    if generation is None:
        generation = -1
    return MemberRow(
        member_id=_string(row["id"], f"{path}.id"),
        topics=tuple(_string(name, f"{path}.topics[{i}]") for i, name in enumerate(topics)),
        owned=grouped(_claim(claim, f"{path}.owned[{i}]") for i, claim in enumerate(owned)),
        generation=max(
            _integer(generation, f"{path}.generation", low=-INT32_MAX - 1, high=INT32_MAX),
            NO_GENERATION,
        ),
        instance_id=_optional_string(row.get("instance_id"), f"{path}.instance_id"),
        rack=_optional_string(row.get("rack"), f"{path}.rack"),
    )


def _claim(value: object, path: str) -> Resource:
    pair = _list(value, path)
    if len(pair) != 2:
        raise ModelError(f"{len(pair)} values, expected [topic, partition]", column=path)
    partition = _integer(pair[1], f"{path}[1]", low=-INT32_MAX - 1, high=INT32_MAX)
    return _string(pair[0], f"{path}[0]"), partition


def _racks(value: object, partitions: Mapping[str, int]) -> dict[str, list[list[str]]] | None:
    if value is None:
        return None
    result: dict[str, list[list[str]]] = {}
    for name, rows in _mapping(value, "racks").items():
        listed = _list(rows, f"racks.{name}")
        _expect_partitions(name, listed, partitions, f"racks.{name}")
        result[name] = [
            [_string(r, f"racks.{name}[{i}]") for r in _list(row, f"racks.{name}[{i}]")]
            for i, row in enumerate(listed)
        ]
    return result


def _lags(top: Mapping[str, Any], partitions: Mapping[str, int]) -> dict[str, list[int]] | None:
    reset = _string(top.get("auto_offset_reset", "latest"), "auto_offset_reset")
    lags, offsets = top.get("lags"), top.get("offsets")
    if lags is not None and offsets is not None:
        raise ModelError("both given, expected one", column="lags, offsets")
    key = "lags" if offsets is None else "offsets"
    if top.get(key) is None:
        return None
    result: dict[str, list[int]] = {}
    for name, rows in _mapping(top[key], key).items():
        path = f"{key}.{name}"
        listed = _list(rows, path)
        _expect_partitions(name, listed, partitions, path)
        if key == "offsets":
            offsets = [_offsets(row, f"{path}[{i}]") for i, row in enumerate(listed)]
            begin, end, committed = np.array(offsets, np.int64).reshape(-1, 3).T
            result[name] = lag_of_columns(begin, end, committed, reset).tolist()
        else:
            result[name] = [
                _integer(row, f"{path}[{i}]", low=0, high=MAX_LAG) for i, row in enumerate(listed)
            ]
    return result


def _offsets(value: object, path: str) -> tuple[int, int, int]:
    """Return first, next and committed offset; NO_COMMIT where there is none."""
    row = _mapping(value, path)
    _refuse_unknown(row, _OFFSET, path)
    begin = _integer(row.get("begin", 0), f"{path}.begin", low=0, high=MAX_LAG)
    if "end" not in row:
        raise ModelError("missing", column=f"{path}.end")
    end = _integer(row["end"], f"{path}.end", low=begin, high=MAX_LAG)
    committed = row.get("committed")
    if committed is None:
        return begin, end, NO_COMMIT
    return begin, end, _integer(committed, f"{path}.committed", low=NO_COMMIT, high=MAX_LAG)


def _expect_partitions(
    name: str, listed: Sequence[object], partitions: Mapping[str, int], path: str
) -> None:
    if name not in partitions:
        raise ModelError("this topic has no partition count", column=path)
    if len(listed) != partitions[name]:
        raise ModelError(f"{len(listed)} entries, expected {partitions[name]}", column=path)


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ModelError(f"{_kind(value)}, expected an object", column=path)
    for key in value:
        _string(key, f"a key of {path}")
    return value


def _list(value: object, path: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise ModelError(f"{_kind(value)}, expected a list", column=path)
    return value


def _string(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise ModelError(f"{_kind(value)}, expected a string", column=path)
    return value


def _optional_string(value: object, path: str) -> str | None:
    """Return a string, or None for null and for the empty string (Kafka's way to say none)."""
    return None if value is None else _string(value, path) or None


def _integer(value: object, path: str, *, low: int, high: int) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ModelError(f"{_kind(value)}, expected an integer", column=path)
    if not low <= value <= high:
        raise ModelError(f"{value}, expected {low} to {high}", column=path)
    return int(value)


def _kind(value: object) -> str:
    return "null" if value is None else f"{type(value).__name__} {value!r:.40}"


def _refuse_unknown(row: Iterable[str], known: tuple[str, ...], path: str) -> None:
    unknown = sorted(set(row) - set(known))
    if unknown:
        text = f"unknown key {unknown[0]!r}, expected some of {', '.join(known)}"
        raise ModelError(text, column=path)
