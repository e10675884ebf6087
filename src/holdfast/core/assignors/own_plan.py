"""The arguments of a user's own assignor, and the check of its result.

**Rules.** Every outcome of the function becomes a valid target or one PlanError that names the
assignor and the first wrong partition. Every partition of a subscribed topic has one owner, which
subscribes to the topic; no other partition has one.

**Strategy.** The ``function`` of an assignor of :mod:`holdfast.core.assignors.own` is :func:`solve`
or :func:`solve_in_names`. The names are Python objects, one a topic-partition: a function that
needs speed takes numbers.

References: KIP-54, "Guarantees"; KAFKA-13406 (a plan is checked before it is sent).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.result import Solution
from holdfast.core.model.columns import I32, NO_OWNER, Mask
from holdfast.core.model.group import Group
from holdfast.errors import PlanError

_SHAPE = "{(topic, partition): member id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMember:
    """A member as a function that takes names sees it."""

    member_id: str
    topics: tuple[str, ...]  # topics that exist and that it subscribes to, sorted
    # The member's ``group.instance.id`` and rack, if it has them.
    instance_id: str | None = None
    rack: str | None = None


def solve(name: str, plan: Callable[..., object], claims: Claims) -> Solution:
    """Call a user's function of numbers, and check its plan; ``name`` is the assignor's."""
    return _checked(name, claims, lambda _: _column(plan(claims), claims.group))


def solve_in_names(
    name: str, plan: Callable[..., object], claims: Claims, *, with_lags: bool
) -> Solution:
    """Call a user's function of names, and check its plan; ``name`` is the assignor's."""

    def target(wanted: Mask) -> I32:
        names = _InNames(claims, wanted)
        return names.column(plan(*names.arguments(with_lags=with_lags)))

    return _checked(name, claims, target)


def _checked(name: str, claims: Claims, target_of: Callable[[Mask], I32]) -> Solution:
    """Return the checked target, or raise the one PlanError that names the assignor."""
    group = claims.group
    wanted = group.has_subscriber[group.topics.topic_of]
    if not wanted.any():
        return Solution(target=np.full(group.topics.n_tps, NO_OWNER, np.int32))
    try:
        target = target_of(wanted)
        _check(group, target, wanted)
    except PlanError as error:
        raise PlanError(f"assignor {name}: {error}") from error.__cause__
    except (Exception, SystemExit) as error:  # whatever the user's function does
        text = f"assignor {name}: its function raised {type(error).__name__}: {error}"
        raise PlanError(text) from error
    return Solution(target=target)


def _column(given: object, group: Group) -> I32:
    """Return a plan in numbers as a column."""
    found = np.asarray(given)
    n_tps = group.topics.n_tps
    if found.dtype.kind not in "iu" or found.shape != (n_tps,):
        what = f"{type(given).__name__} of {found.dtype} and shape {found.shape}"
        raise PlanError(f"returned {what}; expected integers of shape ({n_tps},)")
    strange = np.flatnonzero((found < NO_OWNER) | (found >= group.n_members))
    if len(strange):
        tp = int(strange[0])
        last = group.n_members - 1
        raise PlanError(
            f"gives {_shown(group, tp)} to member {found[tp]}; expected 0 to {last}, or {NO_OWNER}"
        )
    return found.astype(np.int32)


class _InNames:
    """A group in names, and the conversion back to numbers."""

    def __init__(self, claims: Claims, wanted: Mask):
        self._claims = claims
        self._tps = np.flatnonzero(wanted).tolist()
        name_of = claims.group.topics.name_of
        self._names = [name_of(tp) for tp in self._tps]

    def arguments(self, *, with_lags: bool) -> list[object]:
        """Return the arguments of the function."""
        group, owner = self._claims.group, self._claims.owner.tolist()
        ids = group.member_ids
        topics: dict[str, list[int]] = {}
        lags: dict[str, list[int]] = {}
        claimed: dict[tuple[str, int], str] = {}
        behind = None if group.lags is None else group.lags.tolist()
        for tp, (topic, number) in zip(self._tps, self._names, strict=True):
            topics.setdefault(topic, []).append(number)
            lags.setdefault(topic, []).append(0 if behind is None else behind[tp])
            if owner[tp] != NO_OWNER:
                claimed[topic, number] = ids[owner[tp]]
        fixed = {topic: tuple(numbers) for topic, numbers in topics.items()}
        more = [{topic: tuple(each) for topic, each in lags.items()}] if with_lags else []
        return [_members(group), fixed, claimed, *more]

    def column(self, given: object) -> I32:
        """Return a plan in names as a column."""
        if not isinstance(given, Mapping):
            raise PlanError(f"returned {type(given).__name__}; expected {_SHAPE}")
        group = self._claims.group
        tps = dict(zip(self._names, self._tps, strict=True))
        index = {member_id: member for member, member_id in enumerate(group.member_ids)}
        target = np.full(group.topics.n_tps, NO_OWNER, np.int32)
        for key, member_id in given.items():
            tp = tps.get(key)
            if tp is None:
                _refuse(key, group)
            elif not isinstance(member_id, str) or member_id not in index:
                raise PlanError(f"gives {_shown(group, tp)} to {member_id!r}, which is no member")
            else:
                target[tp] = index[member_id]
        return target


def _members(group: Group) -> dict[str, OwnMember]:
    starts, topics, names = group.sub_start.tolist(), group.sub_topic.tolist(), group.topics.names
    return {
        member_id: OwnMember(
            member_id=member_id,
            topics=tuple(names[topic] for topic in topics[starts[i] : starts[i + 1]]),
            instance_id=group.instance_ids[i],
            rack=group.topics.rack_names[rack] if rack >= 0 else None,
        )
        for i, (member_id, rack) in enumerate(
            zip(group.member_ids, group.rack.tolist(), strict=True)
        )
    }


def _refuse(key: object, group: Group) -> None:
    """Raise the error that says why a key of the plan is not an assignable partition."""
    if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str)):
        raise PlanError(f"returned a mapping with the key {key!r}; expected {_SHAPE}")
    topic, number = key
    if topic not in group.topics.index:
        raise PlanError(f"gives {topic}-{number}, but there is no topic {topic!r}")
    if not group.has_subscriber[group.topics.index[topic]]:
        raise PlanError(f"gives {topic}-{number}, but nobody subscribes to {topic!r}")
    raise PlanError(f"gives {topic}-{number}, which is none of the partitions to be given")


def _check(group: Group, target: I32, wanted: Mask) -> None:
    """Check that every partition of a subscribed topic has one owner, which subscribes to it."""
    ids, topics = group.member_ids, group.topics
    nobody = np.flatnonzero(wanted & (target == NO_OWNER))
    if len(nobody):
        tp = int(nobody[0])
        every = np.arange(group.n_members)
        reads = group.is_subscribed(every, np.full(group.n_members, topics.topic_of[tp]))
        able = ids[int(np.flatnonzero(reads)[0])]
        more = f"; {len(nobody)} partitions have no owner" if len(nobody) > 1 else ""
        raise PlanError(f"gives {_shown(group, tp)} to nobody, and {able!r} subscribes to it{more}")
    given = np.flatnonzero(target != NO_OWNER)
    fits = group.is_subscribed(target[given], topics.topic_of[given])
    if not fits.all():
        tp = int(given[~fits][0])
        member = ids[target[tp]]
        raise PlanError(f"gives {_shown(group, tp)} to {member!r}, which does not subscribe to it")


def _shown(group: Group, tp: int) -> str:
    return "{}-{}".format(*group.topics.name_of(tp))
