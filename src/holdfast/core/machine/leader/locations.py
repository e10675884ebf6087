"""Where members live, so that a process that restarts is known under its new member id.

**Rules.**

1. A *place* is a digest of whatever stays the same when a process restarts: its host, client id and
   the name that a supervisor gives it, or what ``holdfast.location`` says. A member sends the
   digest in its subscription.
2. A place counts only if one member of the round has it. Members with equal places have none: they
   were configured alike. Example: six members with one client id run on one host. None of them has
   a place, and the leader judges all of them by their member ids.
3. A static member has no place: its instance id says the same.
4. A place gives its member nothing but what the last member of that place had.

**Strategy.** The leader settles places once, at the door. From then on a place is an identity
(:func:`holdfast.core.machine.leader.ring.identity_of`), as an instance id is, and costs the memory
nothing.

References: KIP-345, whose ``group.instance.id`` is a place that the coordinator knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b

from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.wire.layouts.container import LOCATION_BYTES


def digest_of(*parts: str) -> bytes:
    """The digest of a place that these texts name together."""
    text = "\0".join(parts)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=LOCATION_BYTES).digest()


def with_locations(members: Iterable[SubscribedMember]) -> tuple[SubscribedMember, ...]:
    """The members of a round, each with its place if no other member says the same (rule 2)."""
    every = tuple(members)
    said = Counter(m.subscription.location for m in every if m.instance_id is None)
    return tuple(replace(m, location=location) if (location := _own(m, said)) else m for m in every)


def shared_locations(members: Iterable[SubscribedMember]) -> tuple[tuple[str, ...], ...]:
    """Ids of the members that say the same place, sorted; each of these places once (rule 2)."""
    found: dict[bytes, list[str]] = {}
    for member in members:
        if member.instance_id is None and member.subscription.location:
            found.setdefault(member.subscription.location, []).append(member.member_id)
    return tuple(sorted(tuple(sorted(ids)) for ids in found.values() if len(ids) > 1))


def _own(member: SubscribedMember, said: Counter[bytes]) -> bytes:
    location = member.subscription.location
    return location if member.instance_id is None and said[location] == 1 else b""
