"""A consumer group as columns: its members, their subscriptions and their claims.

**Rules.** Members are sorted by id and topics by name, so the result of every assignor is a
function of the set of inputs, not of their order. Members with equal subscriptions share one row of
the subscription table. The claim columns hold no impossible claims
(:mod:`holdfast.core.model.reported`).

In a JSON snapshot, unknown keys are refused by name. A wrong value raises :class:`ModelError`,
whose text begins with the path of the value. Impossible *claims* are no errors: they are data of
the group, dropped and counted later.

**Strategy.** :meth:`Group.build` is the only function that makes a group. Each source (a JSON
snapshot, messages, tables) turns its subscriptions and claims into columns first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import lt
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import (
    I32,
    I64,
    Mask,
    frozen,
    positions_in,
    row_of,
    row_sizes,
    starts,
)
from holdfast.core.model.constants import INT32_MAX, MOST_PARTITIONS, NO_GENERATION
from holdfast.core.model.lag import MAX_LAG, NO_COMMIT, lag_column, lag_of_columns
from holdfast.core.model.partitions import Resource, TopicPartitions, grouped
from holdfast.core.model.reported import (
    DroppedClaims,
    ReportedClaims,
    Subscriptions,
    check_claims,
    partitions_by_member,
)
from holdfast.core.model.topics import NO_RACK, Topics
from holdfast.errors import ModelError


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Members, subscriptions and claims.

    Parameters
    ----------
    topics : Topics
        Topics of the cluster. A subscribed topic that does not exist is not in any row.
    member_ids : tuple of str
        Sorted, unique.
    instance_ids : tuple of str or None
        Static identity of each member (KIP-345).
    set_start, set_topic : int64[n_sets + 1], int32[...]
        The distinct subscriptions, each a sorted row of topic indices.
    subscription : int32[n_members]
        Row of the subscription table for each member.
    claim_start, claim_tp : int64[n_members + 1], int32[...]
        Topic-partitions that each member claims, sorted in each row.
    generation : int32[n_members]
        Generation in which the member learned its claims; -1 if it has none.
    rack : int32[n_members]
        Index into ``topics.rack_names``, or -1.
    lags : int64[n_tps], optional
        Messages behind the end of each topic-partition, at least 0.
    foreign_member, foreign_tp : int32[n_foreign]
        Claims of topic-partitions that exist but that the claimant does not subscribe to: no right
        to keep them, yet a cooperative round must wait until they are revoked.
    dropped : DroppedClaims
        Claims that were left out, foreign ones included.

    References: KIP-54 (claims), KIP-345 (instance ids), KIP-881 (racks).
    """

    topics: Topics
    member_ids: tuple[str, ...]
    instance_ids: tuple[str | None, ...]
    set_start: I64
    set_topic: I32
    subscription: I32
    claim_start: I64
    claim_tp: I32
    generation: I32
    rack: I32
    foreign_member: I32
    foreign_tp: I32
    lags: I64 | None = None
    dropped: DroppedClaims = field(default_factory=DroppedClaims)

    @classmethod
    def from_dict(
        cls, snapshot: Mapping[str, Any], *, most_partitions: int = MOST_PARTITIONS
    ) -> Group:
        """Read a JSON snapshot.

        Parameters
        ----------
        snapshot : mapping
            ``{"partitions": {topic: count}, "members": [{"id": ..., "topics": [...]}]}`` and
            whatever :meth:`to_dict` returns; ``holdfast assign --help`` has an example.
        most_partitions : int
            Number of topic-partitions that the snapshot may have in all.

        Raises
        ------
        ModelError
            Something is missing, unknown, of the wrong type or out of range; the text names the
            path, as in ``members[3].owned[0]``.
        """
        top = _mapping(snapshot, "snapshot")
        _refuse_unknown(top, _TOP, "snapshot")
        partitions, members = _partitions(top, most_partitions), _members(top)
        topics = Topics.from_counts(
            partitions,
            racks=_racks(top.get("racks"), partitions),
            more_racks=filter(None, (m.rack for m in members)),
        )
        return cls.build(
            topics=topics,
            member_ids=tuple(m.member_id for m in members),
            instance_ids=tuple(m.instance_id for m in members),
            subscriptions=Subscriptions.from_names(topics, (m.topics for m in members)),
            claims=ReportedClaims.from_partitions(topics, [m.owned for m in members]),
            generation=np.array([m.generation for m in members], np.int32),
            rack=topics.rack_indices([m.rack for m in members]),
            lags=lag_column(_lags(top, partitions), topics),
        )

    @classmethod
    def build(
        cls,
        *,
        topics: Topics,
        member_ids: tuple[str, ...],
        subscriptions: Subscriptions,
        claims: ReportedClaims,
        generation: I32,
        instance_ids: tuple[str | None, ...] | None = None,
        rack: I32 | None = None,
        lags: I64 | None = None,
        round_generation: int | None = None,
    ) -> Group:
        """Build from columns in which only the claims are still unchecked.

        Parameters
        ----------
        topics, member_ids, generation, instance_ids, rack, lags
            Fields of the group. By default no instance id, no rack and no lag is known.
        subscriptions : Subscriptions
            The topics of each member.
        claims : ReportedClaims
            The members' claims.
        round_generation : int, optional
            Generation of the round that the group is in. Members learned what they own in an
            earlier generation. So a claim of ``round_generation`` or a later one is ignored, and
            its member counts as one without a generation.

        Raises
        ------
        ModelError
            Member ids are not strictly ascending.
        """
        ascending = list(map(lt, member_ids, member_ids[1:]))
        if not all(ascending):
            index = ascending.index(False)
            left, right = member_ids[index : index + 2]
            text = f"{right!r} after {left!r}, expected ascending unique member ids"
            raise ModelError(text, column="member_ids", index=index + 1)
        n_members = len(member_ids)
        impossible = None
        if round_generation is not None and (generation >= round_generation).any():
            impossible = generation >= round_generation
            generation = np.where(impossible, NO_GENERATION, generation).astype(np.int32)
        checked = check_claims(topics, subscriptions, claims, member_ids, impossible=impossible)
        return cls(
            topics=topics,
            member_ids=member_ids,
            instance_ids=instance_ids or (None,) * n_members,
            set_start=frozen(subscriptions.start),
            set_topic=frozen(subscriptions.topic),
            subscription=frozen(subscriptions.of_member),
            claim_start=frozen(checked.start),
            claim_tp=frozen(checked.tp),
            generation=frozen(generation),
            rack=frozen(np.full(n_members, NO_RACK, np.int32) if rack is None else rack),
            foreign_member=frozen(checked.foreign_member),
            foreign_tp=frozen(checked.foreign_tp),
            lags=lags,
            dropped=checked.dropped,
        )

    @property
    def n_members(self) -> int:
        """Number of members."""
        return len(self.member_ids)

    @property
    def n_sets(self) -> int:
        """Number of distinct subscriptions."""
        return len(self.set_start) - 1

    @cached_property
    def sub_start(self) -> I64:
        """CSR starts of the topics each member subscribes to, int64[n_members + 1]."""
        return frozen(starts(row_sizes(self.set_start)[self.subscription]))

    @cached_property
    def sub_topic(self) -> I32:
        """Topics each member subscribes to, sorted in each row, int32[...]; can be large."""
        return frozen(self.set_topic[positions_in(self.set_start, self.subscription)[1]])

    @cached_property
    def assignment_order(self) -> I32:
        """Members in the order in which partitions are assigned, int32[n_members].

        Static members come first, by instance id, then the others by member id, so that a restarted
        static member keeps its position although its member id is new.

        References: KIP-345; ``AbstractPartitionAssignor.MemberInfo`` of Kafka 4.3.1.
        """
        if not any(self.instance_ids):
            return frozen(np.arange(self.n_members, dtype=np.int32))
        keys = [
            (instance_id is None, instance_id or "", member)
            for member, instance_id in enumerate(self.instance_ids)
        ]
        return frozen(np.array([member for *_, member in sorted(keys)], np.int32))

    @cached_property
    def has_subscriber(self) -> Mask:
        """Whether some member may read each topic, bool[n_topics]."""
        mask = np.zeros(self.topics.n_topics, np.bool_)
        mask[self.set_topic] = True  # build keeps no row without a member
        return frozen(mask)

    @cached_property
    def n_readers(self) -> I64:
        """Members that subscribe to each topic, int64[n_topics]."""
        members = np.bincount(self.subscription, minlength=self.n_sets)
        each = np.repeat(members, row_sizes(self.set_start))
        count = np.bincount(self.set_topic, weights=each, minlength=self.topics.n_topics)
        return frozen(count.astype(np.int64))

    def is_subscribed(self, members: npt.NDArray[Any], topics: npt.NDArray[Any]) -> Mask:
        """Return whether ``members[i]`` subscribes to ``topics[i]``, int[n] each: bool[n]."""
        return self.subscriptions.holds(members, topics, self.topics.n_topics)

    @property
    def subscriptions(self) -> Subscriptions:
        """The columns ``set_start``, ``set_topic`` and ``subscription`` as one value."""
        return Subscriptions(self.set_start, self.set_topic, self.subscription)

    def claim_members(self) -> I32:
        """Return the member of each claim in ``claim_tp``, int32[n_claims]."""
        return row_of(self.claim_start)

    def with_claims(self, member: I32, tp: I32, **changes: Any) -> Group:
        """Return the same group, in which ``member[i]`` claims ``tp[i]``, with other ``changes``.

        Parameters
        ----------
        member, tp : int32[n_claims]
            In any order, without repeated pairs.
        """
        counts = np.bincount(member, minlength=self.n_members)
        return replace(
            self,
            claim_start=frozen(starts(counts)),
            claim_tp=frozen(tp[np.lexsort((tp, member))]),
            **changes,
        )

    def without_partitions(self, gone: Mask) -> tuple[Group, I32]:
        """Return the same group as if some topic-partitions did not exist.

        The remaining partitions of a topic are renumbered, from 0 on and in their order.

        Parameters
        ----------
        gone : bool[n_tps]

        Returns
        -------
        group : Group
        kept : int32[...]
            The topic-partitions of the result as this group numbers them, ascending.
        """
        kept = np.flatnonzero(~gone).astype(np.int32)
        new = np.cumsum(~gone, dtype=np.int64) - 1
        own, foreign = ~gone[self.claim_tp], ~gone[self.foreign_tp]
        rest = self.with_claims(
            self.claim_members()[own],
            new[self.claim_tp[own]].astype(np.int32),
            topics=self.topics.only(kept),
            foreign_member=frozen(self.foreign_member[foreign]),
            foreign_tp=frozen(new[self.foreign_tp[foreign]].astype(np.int32)),
            lags=None if self.lags is None else frozen(self.lags[kept]),
        )
        return rest, kept

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON snapshot: sorted, without dropped claims."""
        topics = self.topics
        result: dict[str, Any] = {
            "partitions": dict(zip(topics.names, topics.n_partitions.tolist(), strict=True))
        }
        if topics.rack_start is not None:
            racks = [list(topics.racks_of(tp)) for tp in range(topics.n_tps)]
            result["racks"] = topics.by_name(racks)
        if self.lags is not None:
            result["lags"] = topics.by_name(self.lags.tolist())
        owned = partitions_by_member(topics, self.claim_members(), self.claim_tp)
        result["members"] = [
            {
                "id": member_id,
                "topics": [
                    topics.names[topic]
                    for topic in self.sub_topic[self.sub_start[i] : self.sub_start[i + 1]].tolist()
                ],
                "owned": [[topic, n] for topic, numbers in owned.get(i, ()) for n in numbers],
                "generation": int(self.generation[i]),
                "instance_id": self.instance_ids[i],
                "rack": topics.rack_names[rack] if rack >= 0 else None,
            }
            for i, (member_id, rack) in enumerate(
                zip(self.member_ids, self.rack.tolist(), strict=True)
            )
        ]
        return result


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


def _partitions(top: Mapping[str, Any], most_partitions: int) -> dict[str, int]:
    partitions = {
        name: _integer(count, f"partitions.{name}", low=0, high=2**31 - 2)
        for name, count in _mapping(_needed(top, "partitions"), "partitions").items()
    }
    n_tps = sum(partitions.values())
    if n_tps > most_partitions:  # a few bytes of JSON can name any number
        raise ModelError(
            f"{n_tps} topic-partitions in all, expected at most {most_partitions}; a caller of the "
            "library can allow more (most_partitions)",
            column="partitions",
        )
    return partitions


def _members(top: Mapping[str, Any]) -> list[MemberRow]:
    """Return the members, sorted by id."""
    rows = _list(_needed(top, "members"), "members")
    members = [_member(row, f"members[{i}]") for i, row in enumerate(rows)]
    seen: dict[str, int] = {}
    for i, member in enumerate(members):
        if seen.setdefault(member.member_id, i) != i:
            text = f"{member.member_id!r} is also the id of members[{seen[member.member_id]}]"
            raise ModelError(text, column=f"members[{i}].id")
    return sorted(members, key=lambda member: member.member_id)


def _member(value: object, path: str) -> MemberRow:
    row = _mapping(value, path)
    _refuse_unknown(row, _MEMBER, path)
    member_id = _string(_needed(row, "id", f"{path}."), f"{path}.id")
    topics = _list(_needed(row, "topics", f"{path}."), f"{path}.topics")
    owned = _list(row.get("owned") or [], f"{path}.owned")
    generation = row.get("generation")
    if generation is None:
        generation = -1
    return MemberRow(
        member_id=member_id,
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
    end = _integer(_needed(row, "end", f"{path}."), f"{path}.end", low=begin, high=MAX_LAG)
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


def _needed(row: Mapping[str, Any], key: str, path: str = "") -> Any:
    if key not in row:
        raise ModelError("missing", column=path + key)
    return row[key]


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
