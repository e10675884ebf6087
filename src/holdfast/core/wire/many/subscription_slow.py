"""Members whose subscription has a rare shape: they are read one by one, with the same result.

**Rules.** A member whose subscription cannot be read has no topics. Claims end up in member order,
however they were read.

References: KIP-429, KIP-341.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.core.model.columns import I32, I64, U8
from holdfast.core.wire.layouts.consumer_protocol import Subscription, decode_subscription
from holdfast.core.wire.layouts.sticky_user_data import StickyUserData, read_claims
from holdfast.core.wire.many.name_arrays import NameArrays
from holdfast.core.wire.many.topic_blocks import TopicBlocks
from holdfast.errors import WireError

NO_TOPICS = Subscription(version=0, topics=())


class ClaimNames(Sequence[str]):
    """Topic name of each claim, decoded only on request."""

    def __init__(self, buffer: U8, arrays: NameArrays, run: I64):
        self.buffer, self.arrays, self.run = buffer, arrays, run

    def __len__(self) -> int:
        return len(self.run)

    def __getitem__(self, claim: Any) -> Any:
        run = self.run[claim]
        first = int(self.arrays.name_at[run])
        raw = self.buffer[first : first + int(self.arrays.name_length[run])]
        return raw.tobytes().decode(errors="replace")


class OneByOne:
    """Members read one by one, whose claims are merged with the others."""

    def __init__(self, blocks: TopicBlocks, columns: tuple[I32, I32, I32], names: Sequence[str]):
        self.blocks, self.columns, self.names = blocks, columns, names
        self.index = {name.decode(): topic for name, topic in blocks.table.index.items()}
        self.claims: list[tuple[int, int, int, str]] = []
        self.user_data_claimants: list[
            int
        ] = []  # cooperative members with claims in user data alone

    def read(
        self, member: int, data: bytes, cooperative: bool
    ) -> tuple[StickyUserData, str | None]:
        """Read one member; its claims are kept for :meth:`merged`."""
        try:
            subscription = decode_subscription(data)
        except WireError:
            subscription = NO_TOPICS
        known = {self.index[name] for name in subscription.topics if name in self.index}
        self.blocks.row[member] = self.blocks.add(np.array(sorted(known), np.int32).tobytes())
        claim = claims_of(subscription, cooperative=cooperative)
        if cooperative and claim.partitions and not subscription.owned:
            self.user_data_claimants.append(member)
        self.claims += [
            (member, self.index.get(name, -1), partition, name)
            for name, numbers in claim.partitions
            for partition in numbers
        ]
        return claim, subscription.rack or None

    def merged(self) -> tuple[tuple[I32, I32, I32], Sequence[str]]:
        """Return all claims in member order, and their names."""
        slow = np.array([row[:3] for row in self.claims], np.int64).reshape(-1, 3)
        both = [
            np.concatenate((fast, column.astype(np.int32)))
            for fast, column in zip(self.columns, slow.T, strict=True)
        ]
        order = np.argsort(both[0], kind="stable")
        names = _Merged(self.names, [row[3] for row in self.claims], order)
        return (both[0][order], both[1][order], both[2][order]), names


class _Merged(Sequence[str]):
    """Names of claims read fast, then slowly, in a new order."""

    def __init__(self, fast: Sequence[str], slow: list[str], order: I64):
        self.fast, self.slow, self.order = fast, slow, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, claim: Any) -> Any:
        at = int(self.order[claim])
        return self.fast[at] if at < len(self.fast) else self.slow[at - len(self.fast)]


def claims_of(subscription: Subscription, *, cooperative: bool) -> StickyUserData:
    """Return claims from the place where the assignor's members have them, else from the other."""
    first = read_claims(subscription, cooperative=cooperative)
    if first.partitions:
        return first
    second = read_claims(subscription, cooperative=not cooperative)
    return second if second.partitions else first
