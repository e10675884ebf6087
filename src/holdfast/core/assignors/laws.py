"""The laws of assignors, each a check of a finished result that raises LawError.

**Rules.** The first five hold for every assignor; its row says which of the others it claims.

=================  ===============================================================================
``valid``          each partition of a subscribed topic has one owner, which subscribes to it
``deterministic``  the same group gives the same result
``independent``    so do members, topics and claims in another order
``one-way``        a cooperative round assigns no partition that another member claims (KIP-429)
``settles``        a cooperative group withholds nothing after at most two more rounds
``balanced``       no partition can move to a subscriber that has two fewer (KIP-54)
``sticky``         its own outcome, given back as claims, moves nothing
``optimal``        the certificate proves it, and no other assignor has more even loads
``keeps-all``      no valid claim moves
=================  ===============================================================================

A checker reads a result by names, in the slow and obvious way.

**Strategy.** :func:`check_laws` draws small groups from a seed, the smallest first, and checks an
assignor's laws on each. The tests check every assignor of the registry with the same functions, on
groups of their own.

References: KIP-54, "Guarantees"; KIP-429; KIP-726.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from holdfast.core.assignors.registry import Named, assign, find, follow
from holdfast.core.assignors.result import Result, Solution
from holdfast.core.model.group import Group
from holdfast.errors import ConfigError, InfeasibleError, LawError, ModelError, PlanError

Snapshot = Mapping[str, Any]
Owners = dict[tuple[str, int], str]

CLAIMED = ("balanced", "keeps-all", "optimal", "sticky")
"""Laws that an assignor may claim."""

MOST_ROUNDS = 3
"""Rounds of a cooperative group until nothing is withheld, at most."""


def check_laws(
    assignor: Named,
    *,
    laws: Iterable[str] = (),
    groups: Iterable[Snapshot] = (),
    n_groups: int = 200,
    seed: int = 0,
    **options: Any,
) -> None:
    """Check that an assignor keeps its laws.

    Parameters
    ----------
    assignor : str or assignor
        A name of docs/assignors.md, or what :func:`holdfast.assignor` returned.
    laws : iterable of str
        Laws to be checked beside those that the assignor claims.
    groups : iterable of mapping
        Snapshots of groups to be checked first.
    n_groups : int
        Groups to be drawn, beginning with one member and one topic.
    seed : int
        Seed of all random draws.
    **options
        Options of the assignor.

    Raises
    ------
    LawError
        With the law, what is wrong, and the group as a snapshot.
    ConfigError
        An unknown assignor, law or option.

    Notes
    -----
    A law that holds on every drawn group is not proven. Differences between processes, as in the
    order of a set of strings, are not detected.
    """
    info = find(assignor)
    wanted = info.laws | set(laws)
    if unknown := sorted(wanted.difference(CLAIMED)):
        raise ConfigError(f"law {unknown[0]!r}: expected of {', '.join(CLAIMED)}")
    rng = np.random.default_rng(seed)
    drawn = (_group(rng, at, equal=info.needs_equal_subscriptions) for at in range(n_groups))
    for snapshot in (*groups, *drawn):
        try:
            hold(snapshot, info, wanted, options)
        except InfeasibleError:
            continue
        except LawError as error:
            text = f"{info.name} {error.message}; the group: {json.dumps(snapshot)}"
            raise LawError(error.law, text) from error
        except PlanError as error:
            raise LawError("valid", f"{error}; the group: {json.dumps(snapshot)}") from error


def hold(
    snapshot: Snapshot, assignor: Named, laws: Collection[str], options: Mapping[str, Any]
) -> Result:
    """Run an assignor on one group, and check the given laws and those of all assignors.

    Moves beyond ``max_moves`` are left to later rounds, and ``weights`` make loads uneven.
    """
    info = find(assignor)
    result = assign(Group.from_dict(snapshot), info, **options)
    is_valid(snapshot, result, cooperative=info.cooperative)
    _is_same("deterministic", result, assign(Group.from_dict(snapshot), info, **options))
    _is_same("independent", result, assign(Group.from_dict(_mixed(snapshot)), info, **options))
    if info.cooperative:
        never_revokes_and_assigns(snapshot, result)
        settles(result, info, options)
    is_capped = options.get("max_moves") is not None
    if "balanced" in laws and not is_capped and not options.get("weights"):
        is_balanced(snapshot, result, slack=options.get("max_skew", 0))
    if "keeps-all" in laws:
        moved = result.quality.moved
        _law("keeps-all", moved == 0, f"moves {moved} valid claims")
    if "optimal" in laws:
        is_optimal(snapshot, result)
    if "sticky" in laws and not is_capped:
        is_sticky(result, info, options)
    return result


def owners(rows: Mapping[str, Mapping[str, Iterable[int]]]) -> Owners:
    """Return the owner of each partition of ``{member: {topic: [partitions]}}``."""
    result: Owners = {}
    for member, own in rows.items():
        for topic, partitions in own.items():
            for partition in partitions:
                if (topic, partition) in result:
                    raise LawError("valid", f"{topic}-{partition} has two owners")
                result[topic, partition] = member
    return result


def wanted_owners(result: Result) -> Owners:
    """Return the owner of each partition in the target, withheld or not."""
    group, ids = result.group, result.group.member_ids
    return {
        group.topics.name_of(tp): ids[member]
        for tp, member in enumerate(result.target.tolist())
        if member >= 0
    }


def is_valid(snapshot: Snapshot, result: Result, *, cooperative: bool) -> None:
    """Check that exactly the subscribed partitions have one subscriber each, or are withheld."""
    topics = {member["id"]: set(member["topics"]) for member in snapshot["members"]}
    target, assigned = wanted_owners(result), owners(result.to_dict())
    subscribed = {
        (topic, partition)
        for topic, count in snapshot["partitions"].items()
        for partition in range(count)
        if any(topic in own for own in topics.values())
    }
    _law("valid", set(result.to_dict()) == set(topics), "other members than those of the group")
    _law("valid", set(target) == subscribed, f"gives {_most(set(target) ^ subscribed)} wrongly")
    strange = {tp for tp, member in target.items() if tp[0] not in topics[member]}
    _law("valid", not strange, f"gives {_most(strange)} to members without a subscription")
    _law("valid", assigned.items() <= target.items(), "assigns something other than the target")
    held_back = {result.group.topics.name_of(tp) for tp in result.withheld}
    _law("valid", held_back == target.keys() - assigned.keys(), "withholds something else")
    _law("valid", not held_back or cooperative, f"withholds {_most(held_back)}, and is eager")


def never_revokes_and_assigns(snapshot: Snapshot, result: Result) -> None:
    """Check that a cooperative round assigns no partition that another member claims.

    The member that alone claims a partition in its newest generation keeps it.
    """
    claims: dict[tuple[str, int], dict[str, int]] = {}
    for member in snapshot["members"]:
        for topic, partition in member.get("owned", ()):
            claims.setdefault((topic, partition), {})[member["id"]] = member.get("generation", -1)
    for tp, member_id in owners(result.to_dict()).items():
        claimed = dict(claims.get(tp, {}))
        mine = claimed.pop(member_id, -2)
        others = sorted(m for m, generation in claimed.items() if generation >= mine)
        _law(
            "one-way", not others, f"assigns {_most([tp])} to {member_id}, while {others} claim it"
        )


def settles(result: Result, assignor: Named, options: Mapping[str, Any]) -> None:
    """Check that after at most ``MOST_ROUNDS`` rounds nothing is withheld."""
    try:
        rounds = len(follow(result.group, assignor, **options))
    except PlanError:
        raise
    except ModelError as error:
        raise LawError("settles", f"gives partitions to others in every round: {error}") from error
    _law("settles", rounds <= MOST_ROUNDS, f"needs {rounds} rounds; expected {MOST_ROUNDS}")


def _is_same(law: str, result: Result, again: Result) -> None:
    """Check that a second run has the same outcome."""
    differ = np.flatnonzero(again.target != result.target).tolist()
    names = [result.group.topics.name_of(tp) for tp in differ]
    _law(law, not differ, f"gives {_most(names)} to others the second time")
    _law(law, again.to_json() == result.to_json(), "reports other numbers")


def _mixed(snapshot: Snapshot) -> Snapshot:
    """Return the same group with members, topics and claims in another order."""
    rng = np.random.default_rng(len(str(snapshot)))
    mixed = dict(snapshot, partitions=dict(_shuffled(rng, snapshot["partitions"].items())))
    mixed["members"] = [
        dict(member, **{k: _shuffled(rng, member.get(k, ())) for k in ("topics", "owned")})
        for member in _shuffled(rng, snapshot["members"])
    ]
    return mixed


def is_balanced(snapshot: Snapshot, result: Result, *, slack: int = 0) -> None:
    """Check that no partition can move to a subscriber with two (and the slack) fewer."""
    topics = {member["id"]: set(member["topics"]) for member in snapshot["members"]}
    loads = result.quality.loads
    for (topic, partition), member in wanted_owners(result).items():
        for other, own in topics.items():
            if topic in own and loads[member] - loads[other] >= 2 + slack:
                text = f"{topic}-{partition} can move from {member} ({loads[member]} partitions)"
                raise LawError("balanced", f"{text} to {other} ({loads[other]})")


def is_sticky(result: Result, assignor: Named, options: Mapping[str, Any]) -> None:
    """Check that the target, given back as claims, moves nothing."""
    plan = Solution(target=result.target)
    settled = Result.of(result.name, result.claims, plan, cooperative=False)
    again = assign(settled.next_round(), assignor, **options)
    moved = np.flatnonzero(again.target != result.target).tolist()
    names = [result.group.topics.name_of(tp) for tp in moved]
    _law("sticky", not moved, f"moves {_most(names)} though nothing has changed")


def is_optimal(snapshot: Snapshot, result: Result) -> None:
    """Check that the certificate verifies, and that no other assignor finds better loads."""
    _law("optimal", result.quality.optimal, "its certificate does not prove it")
    for name in ("fair", "lag-sticky"):
        score = assign(Group.from_dict(snapshot), name).quality.balance_score
        text = f"balance score {result.quality.balance_score}, and {name} has {score}"
        _law("optimal", result.quality.balance_score <= score, text)


def _law(law: str, holds: bool, text: str) -> None:
    if not holds:
        raise LawError(law, text)


def _most(tps: Iterable[tuple[str, int]]) -> str:
    """Return the first few of the partitions."""
    names = [f"{topic}-{partition}" for topic, partition in sorted(tps)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shuffled(rng: np.random.Generator, values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    return [listed[i] for i in rng.permutation(len(listed))]


def _group(rng: np.random.Generator, at: int, *, equal: bool) -> dict[str, Any]:
    """Draw a group with claims of every kind, valid and malformed; the later, the larger."""
    counts = rng.integers(0, 2 + min(6, at // 8), size=1 + min(3, at // 16))
    partitions = {f"t{i}": int(count) for i, count in enumerate(counts)}
    known = [*partitions, "gone"]
    shared = [*partitions]
    same = equal or at % 3 == 0
    members = []
    for i in range(min(1 + at // 6, int(rng.integers(1, 7)))):
        some = [topic for topic in known if rng.random() < 0.7]
        claims = {
            (known[int(rng.integers(len(known)))], int(rng.integers(8)))
            for _ in range(int(rng.integers(7)))
        }
        members.append(
            {
                "id": f"m{i}",
                "topics": shared if same else some,
                "owned": [list(claim) for claim in sorted(claims)],
                "generation": int(rng.integers(-1, 4)),
                "instance_id": f"s{i}" if rng.random() < 0.3 else None,
            }
        )
    lags = {topic: rng.integers(0, 10**6, count).tolist() for topic, count in partitions.items()}
    return {"partitions": partitions, "members": members, "lags": lags}
