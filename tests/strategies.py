"""Hypothesis strategies, the single place for them: one section per area."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.partitions import TopicPartitions, sort_partitions
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    StickyUserData,
    Subscription,
)
from holdfast.core.wire.layouts.container import (
    LOCATION_BYTES,
    FailedPartitions,
    Leaving,
    MemberAssignment,
    MemberSubscription,
)
from holdfast.core.wire.layouts.state_shard import (
    COPIES,
    CROWDS,
    DIGEST_BYTES,
    HASH_BITS,
    LONGER,
    MemberEntry,
    Sizes,
    StateShard,
    digest_of,
    encode_waiting,
)

# Wire: values of every message, in the order in which they come back from the wire

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NONCES = st.integers(0, 2**32 - 1)
DELAYS_MS = st.integers(0, 2**31 - 1)
PARTITIONS = st.integers(0, 2**31 - 1) | st.integers(0, 300)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
topic_names = st.text("abcAZ09._-", min_size=1, max_size=12) | texts
blobs = st.binary(max_size=24)
versions = st.integers(0, 3)


@st.composite
def any_topic_partitions(draw: st.DrawFn) -> TopicPartitions:
    """As any client may send them: unsorted, topics repeated, any int32, empty lists."""
    entry = st.tuples(topic_names, st.lists(INT32, max_size=5).map(tuple))
    return tuple(draw(st.lists(entry, max_size=4)))


def grouped_topic_partitions() -> SearchStrategy[TopicPartitions]:
    """Each topic once, in any order."""
    entry = st.tuples(topic_names, st.lists(INT32, max_size=5).map(tuple))
    return st.lists(entry, max_size=4, unique_by=lambda item: item[0]).map(tuple)


def partition_sets() -> SearchStrategy[TopicPartitions]:
    """Sorted, each topic and each partition once, nothing negative."""
    entry = st.tuples(topic_names, st.lists(PARTITIONS, min_size=1, max_size=5, unique=True))
    return st.lists(entry, max_size=4, unique_by=lambda item: item[0]).map(sort_partitions)


def subscriptions() -> SearchStrategy[Subscription]:
    """As Kafka writes them: sorted; fields that the version lacks at their defaults."""

    def cut(value: Subscription) -> Subscription:
        return Subscription(
            version=value.version,
            topics=value.topics,
            user_data=value.user_data,
            owned=value.owned if value.version >= 1 else (),
            generation=value.generation if value.version >= 2 else -1,
            rack=value.rack if value.version >= 3 else None,
        )

    return st.builds(
        Subscription,
        version=versions,
        topics=st.lists(topic_names, max_size=6).map(lambda names: tuple(sorted(names))),
        user_data=st.none() | blobs,
        owned=any_topic_partitions().map(sort_partitions),
        generation=st.integers(-1, INT32_MAX),
        rack=st.none() | texts,
    ).map(cut)


def assignment_messages() -> SearchStrategy[AssignmentMessage]:
    return st.builds(
        AssignmentMessage,
        version=versions,
        partitions=grouped_topic_partitions(),
        user_data=st.none() | blobs,
    )


def sticky_user_data() -> SearchStrategy[StickyUserData]:
    return st.builds(StickyUserData, partitions=any_topic_partitions(), generation=INT32)


def claims() -> SearchStrategy[MemberSubscription]:
    return st.builds(
        MemberSubscription,
        topics=st.lists(topic_names, max_size=4).map(lambda names: tuple(sorted(names))),
        owned=any_topic_partitions().map(sort_partitions),
        generation=st.integers(-1, INT32_MAX),
        rack=st.none() | texts,
        nonce=NONCES,
        leaving=st.sampled_from(Leaving),
        state_age_ms=DELAYS_MS,
        already_revoked=partition_sets(),
        failed=failed_partitions(),
        leader_state=_state_bytes(),
        location=st.just(b"") | st.binary(min_size=LOCATION_BYTES, max_size=LOCATION_BYTES),
        assignor_data=st.none() | blobs,
    )


def failed_partitions() -> SearchStrategy[tuple[FailedPartitions, ...]]:
    """As a worker reports them: sorted, and each pair of a topic and an error once."""
    errors = st.dictionaries(texts, st.sets(st.integers(0, INT32_MAX), min_size=1, max_size=3))
    return st.dictionaries(topic_names, errors, max_size=3).map(
        lambda found: tuple(
            FailedPartitions(topic, error, tuple(sorted(numbers)))
            for topic, by_error in sorted(found.items())
            for error, numbers in sorted(by_error.items())
        )
    )


def _state_bytes() -> SearchStrategy[bytes | None]:
    """There is no empty memory."""
    return st.none() | st.binary(min_size=1, max_size=24)


def member_assignments() -> SearchStrategy[MemberAssignment]:
    return st.builds(
        MemberAssignment,
        assigned=grouped_topic_partitions(),
        revoked=st.none() | partition_sets(),
        delay_ms=DELAYS_MS,
        leader_state=_state_bytes(),
        planned=st.none() | blobs,
    )


def _bits(size: int) -> SearchStrategy[str]:
    return st.integers(0, (1 << size) - 1).map(lambda value: f"{value:0{size}b}" if size else "")


@st.composite
def state_shards(draw: st.DrawFn) -> StateShard:
    """Shares as they come back: the digest is that of the list, where there is one."""
    topics = draw(st.sampled_from((0, 1, 7, 15)))
    sizes = Sizes(
        crowd=draw(st.sampled_from(CROWDS)),
        topics=topics,
        longer=draw(st.sampled_from((0, 1, LONGER[-1]))),
        partition_bits=draw(st.sampled_from((0, 1, 9, 31))),
        usual_count=draw(st.sampled_from((1, 2, 9, 1_000))),
    )
    hashes = _bits(sizes.topic_bits)
    if not topics:
        hashes = st.just(draw(hashes))
    times_ms = st.integers(1, INT32_MAX)

    def members(
        identities: SearchStrategy[str], delays_ms: SearchStrategy[int], most: int
    ) -> tuple[MemberEntry, ...]:
        highest = (1 << sizes.partition_bits) - 1
        numbers = st.sets(
            st.integers(0, min(300, highest)) | st.integers(0, highest), min_size=1, max_size=9
        )
        owned = st.dictionaries(hashes, numbers.map(sorted).map(tuple), max_size=3)
        member = st.builds(
            MemberEntry,
            identity=identities,
            static=st.booleans(),
            delay_ms=delays_ms,
            owned=st.none() | owned.map(lambda found: tuple(sorted(found.items()))),
        )
        return draw(st.lists(member, max_size=most).map(tuple))

    after = draw(st.just("") | _bits(sizes.identity_bits))
    near = members(_bits(sizes.identity_bits), st.just(0), COPIES)
    waiting = members(
        st.integers(0, HASH_BITS).flatmap(_bits) | _bits(sizes.identity_bits),
        times_ms | st.just(7),
        3,
    )
    waiting = tuple(
        replace(m, away_ms=draw(st.none() | st.integers(0, INT32_MAX))) if m.owned else m
        for m in waiting
    )
    shard = StateShard(
        generation=draw(st.integers(0, INT32_MAX)),
        after=after,
        pace_ms=draw(st.just(0) | times_ms),
        whole=not after and draw(st.booleans()),
        located=draw(st.booleans()),
        neighbours=near,
        waiting=waiting,
        digest=draw(st.just(b"") | st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)),
        sizes=sizes,
    )
    if not topics and (near or waiting):
        shard = replace(shard, sizes=sizes._replace(only_topic=draw(hashes)))
    if not shard.waiting:
        return shard
    return replace(shard, digest=digest_of(encode_waiting(shard.waiting, shard.sizes)))


# Groups: JSON snapshots, as Group.from_dict reads them


@st.composite
def snapshots(draw: st.DrawFn, *, equal: bool | None = None) -> dict[str, Any]:
    """Small groups with claims of every kind, true and odd."""
    counts = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    partitions = {f"t{i}": count for i, count in enumerate(counts)}
    names = [*partitions, "gone"]
    ids = draw(st.lists(st.sampled_from("abcdefgh"), max_size=5, unique=True))
    same = draw(st.booleans()) if equal is None else equal
    shared = draw(st.lists(st.sampled_from(names), unique=True))
    claim = st.tuples(st.sampled_from(names), st.integers(-1, 7)).map(list)
    members = [
        {
            "id": member_id,
            "topics": shared if same else draw(st.lists(st.sampled_from(names), unique=True)),
            "owned": draw(st.lists(claim, max_size=6)),
            "generation": draw(st.integers(-1, 3)),
            "instance_id": draw(st.none() | st.just("s" + member_id)),
        }
        for member_id in ids
    ]
    group: dict[str, Any] = {"partitions": partitions, "members": members}
    if draw(st.booleans()):
        lag = st.integers(0, 3) | st.integers(0, 10**6)
        group["lags"] = {
            name: draw(st.lists(lag, min_size=count, max_size=count))
            for name, count in partitions.items()
        }
    if draw(st.booleans()):
        racks = st.lists(st.sampled_from("xyz"), unique=True, max_size=2)
        group["racks"] = {
            name: draw(st.lists(racks, min_size=count, max_size=count))
            for name, count in partitions.items()
        }
        for member in members:
            member["rack"] = draw(st.none() | st.sampled_from("xyz"))
    return group
