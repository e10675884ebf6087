"""Laws that assignors are held to: each a function of a finished result that raises AssertionError.

Every assignor is *valid*, *deterministic*, *independent of order* and reports honest numbers; the
registry says which of the others it claims:

``balanced``   no partition can move to a subscriber that has two fewer (KIP-54, first guarantee)
``sticky``     its own outcome, given back as claims, moves nothing
``optimal``    the certificate verifies, and nobody else is better balanced
``keeps-all``  no valid claim moves
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.core.assignors.registry import ASSIGNORS, assign
from holdfast.core.assignors.result import Result
from holdfast.core.assignors.rounds import next_round
from holdfast.core.model.group import Group

Snapshot = dict[str, Any]
Owners = dict[tuple[str, int], str]


def owners(rows: dict[str, dict[str, list[int]]]) -> Owners:
    """Owner of each partition; fails if one has two."""
    result: Owners = {}
    for member, own in rows.items():
        for topic, partitions in own.items():
            for partition in partitions:
                assert (topic, partition) not in result, f"{topic}-{partition} has two owners"
                result[topic, partition] = member
    return result


def wanted(result: Result) -> Owners:
    """Owner of each partition in the target, whatever is withheld."""
    group, ids = result.group, result.group.member_ids
    return {
        group.topics.name_of(tp): ids[member]
        for tp, member in enumerate(result.target.tolist())
        if member >= 0
    }


def with_claims(snapshot: Snapshot, held: Owners, generation: int) -> Snapshot:
    """The group once its members own what they were given."""
    members = [
        dict(
            member,
            owned=[[topic, p] for (topic, p), owner in held.items() if owner == member["id"]],
            generation=generation,
        )
        for member in snapshot["members"]
    ]
    return dict(snapshot, members=members)


def is_valid(snapshot: Snapshot, result: Result) -> None:
    """Just the subscribed partitions are wanted, each by one subscriber; the rest is withheld."""
    topics = {member["id"]: set(member["topics"]) for member in snapshot["members"]}
    target, handed = wanted(result), owners(result.to_dict())
    assert set(result.to_dict()) == set(topics)
    subscribed = {
        (topic, partition)
        for topic, count in snapshot["partitions"].items()
        for partition in range(count)
        if any(topic in own for own in topics.values())
    }
    assert set(target) == subscribed
    assert all(topic in topics[member] for (topic, _), member in target.items())
    assert handed.items() <= target.items()
    held_back = {result.group.topics.name_of(tp) for tp in result.withheld}
    assert held_back == target.keys() - handed.keys()
    assert not held_back or ASSIGNORS[result.name].cooperative


def never_revokes_and_assigns(snapshot: Snapshot, result: Result) -> None:
    """A cooperative round hands nobody what another claims (S3 in ``sim/rules/checkers.py``).

    The member that alone claims a partition in its newest generation keeps it.
    """
    if not ASSIGNORS[result.name].cooperative:
        return
    claims: dict[tuple[str, int], dict[str, int]] = {}
    for member in snapshot["members"]:
        for topic, partition in member.get("owned", ()):
            claims.setdefault((topic, partition), {})[member["id"]] = member.get("generation", -1)
    for tp, member_id in owners(result.to_dict()).items():
        claimed = dict(claims.get(tp, {}))
        mine = claimed.pop(member_id, -2)
        assert all(generation < mine for generation in claimed.values()), (tp, claims[tp])


def is_deterministic(snapshot: Snapshot, result: Result, options: dict[str, Any]) -> None:
    """The same input gives the same outcome."""
    again = assign(Group.from_dict(snapshot), result.name, **options)
    assert again.target.tolist() == result.target.tolist()
    assert again.to_json() == result.to_json()


def is_independent_of_order(snapshot: Snapshot, result: Result, options: dict[str, Any]) -> None:
    """Members, topics and claims in another order give the same outcome."""
    shuffle = random.Random(len(str(snapshot))).shuffle
    mixed = dict(snapshot, partitions=_shuffled(snapshot["partitions"], shuffle))
    mixed["members"] = [dict(member) for member in snapshot["members"]]
    shuffle(mixed["members"])
    for member in mixed["members"]:
        for key in ("topics", "owned"):
            member[key] = list(member.get(key, ()))
            shuffle(member[key])
    again = assign(Group.from_dict(mixed), result.name, **options)
    assert again.to_json() == result.to_json()


def _shuffled(mapping: dict[str, int], shuffle: Callable[[list[Any]], None]) -> dict[str, int]:
    items = list(mapping.items())
    shuffle(items)
    return dict(items)


def is_balanced(snapshot: Snapshot, result: Result, *, slack: int = 0) -> None:
    """No partition can move to a subscriber with two (and the slack) fewer."""
    topics = {member["id"]: set(member["topics"]) for member in snapshot["members"]}
    loads = result.quality.loads
    for (topic, partition), member in wanted(result).items():
        for other, own in topics.items():
            if topic in own:
                assert loads[member] - loads[other] < 2 + slack, (topic, partition, member, other)


def is_sticky(result: Result, options: dict[str, Any]) -> None:
    """Its own target, given back as claims, moves nothing."""
    settled = Result.of(result.name, result.claims, _plan(result), cooperative=False)
    again = assign(next_round(settled), result.name, **options)
    moved = np.flatnonzero(again.target != result.target)
    assert moved.size == 0, [result.group.topics.name_of(int(tp)) for tp in moved]
    assert not again.withheld


def _plan(result: Result) -> Any:
    from holdfast.core.assignors.result import Solution

    return Solution(target=result.target)


def is_optimal(snapshot: Snapshot, result: Result) -> None:
    """The certificate verifies, and no other assignor found better loads."""
    assert result.quality.optimal
    for name in ("fair", "lag-sticky"):
        other = assign(Group.from_dict(snapshot), name).quality
        assert result.quality.balance_score <= other.balance_score


def keeps_all(result: Result) -> None:
    """No valid claim moves."""
    assert result.quality.moved == 0


def reports_what_it_did(snapshot: Snapshot, result: Result) -> None:
    """The numbers of ``quality`` follow from the rows, by the slow and obvious way."""
    quality, target = result.quality, wanted(result)
    ids = [member["id"] for member in snapshot["members"]]
    loads = {member: sum(owner == member for owner in target.values()) for member in ids}
    assert quality.loads == loads
    assert quality.spread == max(loads.values(), default=0) - min(loads.values(), default=0)
    pairs = [abs(a - b) for i, a in enumerate(loads.values()) for b in list(loads.values())[:i]]
    assert quality.balance_score == sum(pairs)
    before = {
        result.group.topics.name_of(tp): result.group.member_ids[member]
        for tp, member in enumerate(result.claims.owner.tolist())
        if member >= 0
    }
    assert quality.kept == sum(target[tp] == member for tp, member in before.items())
    assert quality.moved == sum(target[tp] != member for tp, member in before.items())
    assert quality.withheld == len(result.withheld)
    assert quality.needed_moves is None or quality.needed_moves <= quality.moved
    if quality.lags is not None:
        lags = dict.fromkeys(ids, 0)
        for (topic, partition), member in target.items():
            lags[member] += snapshot.get("lags", {}).get(topic, [0] * (partition + 1))[partition]
        assert quality.lags == lags


def check(snapshot: Snapshot, name: str, options: dict[str, Any] | None = None) -> Result:
    """Run an assignor and hold the result to every law it claims."""
    options = options or {}
    result = assign(Group.from_dict(snapshot), name, **options)
    laws = ASSIGNORS[name].laws
    is_valid(snapshot, result)
    never_revokes_and_assigns(snapshot, result)
    is_deterministic(snapshot, result, options)
    is_independent_of_order(snapshot, result, options)
    reports_what_it_did(snapshot, result)
    if "balanced" in laws and not options.get("weights") and options.get("max_moves") is None:
        is_balanced(snapshot, result, slack=options.get("max_skew", 0))
    if "sticky" in laws and options.get("max_moves") is None:
        is_sticky(result, options)
    if "optimal" in laws:
        is_optimal(snapshot, result)
    if "keeps-all" in laws:
        keeps_all(result)
    return result
