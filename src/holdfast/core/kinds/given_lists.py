"""Lists of members' assignments, made from lists in their messages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from holdfast.core.kinds.kind import ACTIVE, Given, GivenList
from holdfast.core.model.partitions import Resource, TopicPartitions


def lists_of(role: int, things: Iterable[Resource]) -> list[GivenList]:
    """Return the things as one list for each place, sorted by place and number."""
    return [
        (role, place, [number for _, number in of_place])
        for place, of_place in groupby(sorted(things), key=itemgetter(0))
    ]


def given_by_increments(
    had: TopicPartitions | None,
    revoked: TopicPartitions | None,
    assigned: TopicPartitions | None,
    *,
    whole: bool = False,
    delay_ms: int = 0,
    config_offset: int = -1,
) -> Given:
    """Return a member's assignment after a round whose messages list changes.

    Parameters
    ----------
    whole : bool
        True: the member has ``assigned`` alone, and the assignment does not say what was revoked.
    """
    before, gone, new = (
        {(place, number) for place, numbers in listed or () for number in numbers}
        for listed in (had, revoked, assigned)
    )
    return Given(
        owned=lists_of(ACTIVE, new if whole else before - gone | new),
        n_claimed=len(before),
        n_revoked=-1 if whole else len(gone),
        delay_ms=delay_ms,
        config_offset=config_offset,
    )
