"""A consumer group as columns: who is in it, what each member may read, and what each one claims.

**Rules.** Members are sorted by id and topics by name, so the result of every assignor is a
function of the set of inputs, not of their order. Members with equal subscriptions share one row
of the subscription table. A claim that cannot be true (see :data:`REASONS`) is not in the claim
columns; it is counted in ``dropped``. Which of several claims of one partition wins is not decided
here, but in :mod:`holdfast.assignors.claims`.

**Strategy.** :meth:`Group.from_dict` reads the JSON snapshot, :meth:`Group.from_columns` takes what
the wire decoder found; both end in the same filter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import lt
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import ModelError
from holdfast.model import snapshot as snapshots
from holdfast.model.columns import I32, I64, Mask, frozen, row_of, starts, within
from holdfast.model.topics import Topics

NO_RACK = -1
"""Rack index of a member that named none."""

REASONS = ("unknown-topic", "no-such-partition", "not-subscribed", "repeated")
"""Why a single claim is dropped, in the order in which the reasons are tried."""

MAX_EXAMPLES = 100
"""Dropped claims that are kept by name; the counts are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedClaims:
    """Claims that no assignor sees.

    Parameters
    ----------
    counts : mapping of str to int
        Claims dropped by reason, reasons without any left out.
    examples : tuple
        Up to 100 of them as ``(reason, member id, topic, partition)``.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[tuple[str, str, str, int], ...] = ()

    def __add__(self, other: DroppedClaims) -> DroppedClaims:
        """Both together."""
        return DroppedClaims(
            counts=dict(Counter(self.counts) + Counter(other.counts)),
            examples=(self.examples + other.examples)[:MAX_EXAMPLES],
        )


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
        Topic-partitions that each member says it owns, sorted in each row.
    generation : int32[n_members]
        Generation in which the member learned its claims; -1 if it has none.
    rack : int32[n_members]
        Index into ``topics.rack_names``, or -1.
    lags : int64[n_tps], optional
        Messages behind the end of each topic-partition, at least 0.
    foreign_member, foreign_tp : int32[n_foreign]
        Claims of topic-partitions that exist but that the claimant does not subscribe to: no right
        to keep them, yet a cooperative round must wait until they are given up.
    dropped : DroppedClaims
        Claims that were left out, foreign ones included.

    References
    ----------
    KIP-54 (claims), KIP-345 (instance ids), KIP-881 (racks).
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
    def from_dict(cls, snapshot: Mapping[str, Any]) -> Group:
        """Read the JSON snapshot.

        Raises
        ------
        ModelError
            Something is missing, unknown, of the wrong type or out of range; the text names the
            place, as in ``members[3].owned[0]``.
        """
        read = snapshots.read(snapshot)
        topics = Topics.from_counts(
            read.partitions,
            racks=read.racks,
            more_racks=filter(None, (m.rack for m in read.members)),
        )
        members = sorted(read.members, key=lambda member: member.member_id)
        rows: dict[tuple[int, ...], int] = {}
        subscription = []
        for member in members:
            known = {topics.index[name] for name in member.topics if name in topics.index}
            subscription.append(rows.setdefault(tuple(sorted(known)), len(rows)))
        racks = {rack: i for i, rack in enumerate(topics.rack_names)}
        owned = [claim for member in members for claim in member.owned]
        return cls.from_columns(
            topics=topics,
            member_ids=tuple(member.member_id for member in members),
            instance_ids=tuple(member.instance_id for member in members),
            set_start=starts(np.array([len(row) for row in rows], np.int64)),
            set_topic=np.array([topic for row in rows for topic in row], np.int32),
            subscription=np.array(subscription, np.int32),
            claim_member=np.repeat(
                np.arange(len(members), dtype=np.int32), [len(member.owned) for member in members]
            ),
            claim_topic=np.array([topics.index.get(name, -1) for name, _ in owned], np.int32),
            claim_partition=np.array([partition for _, partition in owned], np.int32),
            claim_names=[name for name, _ in owned],
            generation=np.array([member.generation for member in members], np.int32),
            rack=np.array([racks.get(m.rack or "", NO_RACK) for m in members], np.int32),
            lags=snapshots.lag_column(read.lags, topics.names, topics.start),
        )

    @classmethod
    def from_columns(
        cls,
        *,
        topics: Topics,
        member_ids: tuple[str, ...],
        set_start: I64,
        set_topic: I32,
        subscription: I32,
        claim_member: I32,
        claim_topic: I32,
        claim_partition: I32,
        generation: I32,
        instance_ids: tuple[str | None, ...] | None = None,
        claim_names: Sequence[str] | None = None,
        rack: I32 | None = None,
        lags: I64 | None = None,
    ) -> Group:
        """Build from columns in which only the claims are still unchecked.

        Parameters
        ----------
        claim_member, claim_topic, claim_partition : int32[n_claims]
            The claims in member order; topic -1 stands for an unknown one.
        claim_names : sequence of str, optional
            Topic name of each claim, to name unknown topics in ``dropped``.

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
        sets = _SetTable(topics, set_start, set_topic, subscription)
        claims = _Claims(claim_member, claim_topic, claim_partition, claim_names)
        sound = _filter_claims(topics, sets, claims, member_ids)
        if rack is None:
            rack = np.full(n_members, NO_RACK, np.int32)
        for column in (set_start, set_topic, subscription, generation, rack):
            frozen(column)
        return cls(
            topics=topics,
            member_ids=member_ids,
            instance_ids=instance_ids or (None,) * n_members,
            set_start=set_start,
            set_topic=set_topic,
            subscription=subscription,
            claim_start=frozen(sound.start),
            claim_tp=frozen(sound.tp),
            generation=generation,
            rack=rack,
            foreign_member=frozen(sound.foreign_member),
            foreign_tp=frozen(sound.foreign_tp),
            lags=lags,
            dropped=sound.dropped,
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
    def member_index(self) -> dict[str, int]:
        """Member index of each id."""
        return {member_id: member for member, member_id in enumerate(self.member_ids)}

    @cached_property
    def sub_start(self) -> I64:
        """CSR starts of the topics each member subscribes to, int64[n_members + 1]."""
        return frozen(starts(np.diff(self.set_start)[self.subscription]))

    @cached_property
    def sub_topic(self) -> I32:
        """Topics each member subscribes to, sorted in each row, int32[...]; can be large."""
        counts = np.diff(self.sub_start)
        first = np.repeat(self.set_start[self.subscription], counts)
        return frozen(self.set_topic[first + within(counts)])

    @cached_property
    def turn(self) -> I32:
        """Members in the order in which partitions are dealt, int32[n_members].

        Static members come first, by instance id, then the others by member id, so that a
        restarted static member keeps its place although its member id is new.

        References
        ----------
        KIP-345; ``AbstractPartitionAssignor.MemberInfo`` of Kafka 4.3.1.
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
        mask[self.set_topic] = True  # from_columns keeps no row that nobody uses
        return frozen(mask)

    @cached_property
    def n_readers(self) -> I64:
        """Members that subscribe to each topic, int64[n_topics]."""
        members = np.bincount(self.subscription, minlength=self.n_sets)
        each = np.repeat(members, np.diff(self.set_start))
        count = np.bincount(self.set_topic, weights=each, minlength=self.topics.n_topics)
        return frozen(count.astype(np.int64))

    def is_subscribed(self, members: npt.NDArray[Any], topics: npt.NDArray[Any]) -> Mask:
        """Whether ``members[i]`` subscribes to ``topics[i]``; both int arrays of one length."""
        sets = _SetTable(self.topics, self.set_start, self.set_topic, self.subscription)
        return sets.holds(members, topics)

    def claimant_of(self) -> I32:
        """Member of each claim in ``claim_tp``, int32[n_claims]."""
        return row_of(self.claim_start)

    def to_dict(self) -> dict[str, Any]:
        """The JSON snapshot again: sorted, without claims that were dropped."""
        return snapshots.write(self)


@dataclass(frozen=True, slots=True)
class _SetTable:
    """The subscription table and a fast answer to "may this member read this topic"."""

    topics: Topics
    set_start: I64
    set_topic: I32
    subscription: I32

    def holds(self, members: npt.NDArray[Any], topics: npt.NDArray[Any]) -> Mask:
        """Whether ``members[i]`` subscribes to ``topics[i]`` (>= 0)."""
        n_sets, n_topics = len(self.set_start) - 1, self.topics.n_topics
        if len(self.set_topic) == n_sets * n_topics:  # everybody reads everything
            return np.ones(len(members), np.bool_)
        keys = row_of(self.set_start).astype(np.int64) * n_topics + self.set_topic
        wanted = self.subscription[members].astype(np.int64) * n_topics + topics
        if n_sets * n_topics <= 1 << 25:
            table = np.zeros(n_sets * n_topics, np.bool_)
            table[keys] = True
            known: Mask = table[wanted]
            return known
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        found: Mask = keys[at] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
        return found


@dataclass(frozen=True, slots=True)
class _Claims:
    member: I32
    topic: I32
    partition: I32
    names: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sound:
    """What is left of the claims."""

    start: I64
    tp: I32
    foreign_member: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    foreign_tp: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    dropped: DroppedClaims = field(default_factory=DroppedClaims)


def _filter_claims(
    topics: Topics, sets: _SetTable, claims: _Claims, member_ids: tuple[str, ...]
) -> _Sound:
    """Keep the claims that can be true, as CSR sorted by member and tp; name the others."""
    if not len(claims.topic) or not topics.n_topics:
        start = np.zeros(len(member_ids) + 1, np.int64)
        none = np.zeros(len(claims.topic), np.bool_)
        dropped = _name_dropped(topics, claims, (none,) * len(REASONS), member_ids)
        return _Sound(start=start, tp=np.empty(0, np.int32), dropped=dropped)
    known = claims.topic >= 0
    topic = np.maximum(claims.topic, 0)
    exists = (claims.partition >= 0) & (claims.partition < topics.n_partitions[topic])
    may = sets.holds(claims.member, topic)
    key = topics.start[topic] + claims.partition
    key += claims.member * np.int64(topics.n_tps)
    good = known & exists & may
    if good.all() and (key[1:] > key[:-1]).all():
        return _Sound(start=_edges(key, topics, member_ids), tp=_tps(key, claims.member, topics))
    at = np.flatnonzero(good)
    kept, first = np.unique(key[at], return_index=True)
    fresh = np.zeros(len(known), np.bool_)
    fresh[at[first]] = True
    foreign = np.flatnonzero(known & exists & ~may)
    return _Sound(
        start=_edges(kept, topics, member_ids),
        tp=_tps(kept, claims.member[at[first]], topics),
        foreign_member=claims.member[foreign],
        foreign_tp=_tps(key[foreign], claims.member[foreign], topics),
        dropped=_name_dropped(topics, claims, (known, exists, may, fresh), member_ids),
    )


def _edges(key: I64, topics: Topics, member_ids: tuple[str, ...]) -> I64:
    """CSR starts of sorted keys ``member * n_tps + tp``."""
    edges = np.arange(len(member_ids) + 1, dtype=np.int64) * topics.n_tps
    return np.asarray(np.searchsorted(key, edges), dtype=np.int64)


def _tps(key: I64, member: I32, topics: Topics) -> I32:
    tps: I32 = (key - member * np.int64(topics.n_tps)).astype(np.int32)
    return tps


def _name_dropped(
    topics: Topics, claims: _Claims, tests: tuple[Mask, ...], member_ids: tuple[str, ...]
) -> DroppedClaims:
    """Count by the first test that each claim fails, with examples in the order given."""
    counts: dict[str, int] = {}
    examples: list[tuple[str, str, str, int]] = []
    passed = np.ones(len(claims.topic), np.bool_)
    for reason, test in zip(REASONS, tests, strict=True):
        failed = np.flatnonzero(passed & ~test)
        passed &= test
        if len(failed):
            counts[reason] = len(failed)
        for i in failed[: MAX_EXAMPLES - len(examples)].tolist():
            topic = int(claims.topic[i])
            name = topics.names[topic] if topic >= 0 else claims.names[i] if claims.names else "?"
            member_id = member_ids[claims.member[i]]
            examples.append((reason, member_id, name, int(claims.partition[i])))
    return DroppedClaims(counts=counts, examples=tuple(examples))
