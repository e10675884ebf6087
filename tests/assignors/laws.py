"""Every law of :mod:`holdfast.core.assignors.laws`, and one more: a result's numbers are honest."""

from __future__ import annotations

from typing import Any

from holdfast.core.assignors.laws import Snapshot, hold, wanted_owners
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.assignors.result import Result


def reports_what_it_did(snapshot: Snapshot, result: Result) -> None:
    """The numbers of ``quality`` follow from the rows, by the slow and obvious way."""
    quality, target = result.quality, wanted_owners(result)
    ids = [member["id"] for member in snapshot["members"]]
    loads = {member: sum(owner == member for owner in target.values()) for member in ids}
    assert quality.loads == loads
    assert quality.spread == max(loads.values(), default=0) - min(loads.values(), default=0)
    pairs = [abs(a - b) for i, a in enumerate(loads.values()) for b in list(loads.values())[:i]]
    assert quality.balance_score == sum(pairs)
    before, counted = (
        {
            result.group.topics.name_of(tp): result.group.member_ids[member]
            for tp, member in enumerate(claims.owner.tolist())
            if member >= 0
        }
        for claims in (result.claims, result.counted)
    )
    assert quality.kept == sum(target[tp] == member for tp, member in counted.items())
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
    result = hold(snapshot, name, ASSIGNORS[name].laws, options or {})
    reports_what_it_did(snapshot, result)
    return result
