"""Locations of members, by which a restarted process is recognised under its new member id.

**Rules.**

1. A *location* is a digest of what stays the same when a process restarts: its host, client id and
   the name that a supervisor gives it, or the value of ``holdfast.location``. A member sends the
   digest in its subscription.
2. A location counts only if one member of the round has it. Members with equal locations have none:
   they were configured alike. Example: six members with one client id run on one host. None of them
   has a location, and the leader identifies all of them by their member ids.
3. A static member has no location: its instance id has the same purpose.
4. A location gives its member only what the last member of that location had.

**Strategy.** The leader resolves locations once, when it reads a round. From then on a location is
an identity (:func:`holdfast.core.machine.leader.ring.identity_of`), as an instance id is, and costs
the leader state nothing.

References: KIP-345, whose ``group.instance.id`` is a location that the coordinator knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b

from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.wire.layouts.container import LOCATION_BYTES


def digest_of(*parts: str) -> bytes:
    """Return the digest of a location that the texts name together."""
    text = "\0".join(parts)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=LOCATION_BYTES).digest()


def with_locations(members: Iterable[SubscribedMember]) -> tuple[SubscribedMember, ...]:
    """Return the members of a round, each with its location if no other has it (rule 2)."""
    every = tuple(members)
    said = Counter(m.subscription.location for m in every if m.instance_id is None)
    return tuple(replace(m, location=location) if (location := _own(m, said)) else m for m in every)


def shared_locations(members: Iterable[SubscribedMember]) -> tuple[tuple[str, ...], ...]:
    """Return the sorted ids of members that report one location, once per location (rule 2)."""
    found: dict[bytes, list[str]] = {}
    for member in members:
        if member.instance_id is None and member.subscription.location:
            found.setdefault(member.subscription.location, []).append(member.member_id)
    return tuple(sorted(tuple(sorted(ids)) for ids in found.values() if len(ids) > 1))


def _own(member: SubscribedMember, said: Counter[bytes]) -> bytes:
    location = member.subscription.location
    return location if member.instance_id is None and said[location] == 1 else b""
