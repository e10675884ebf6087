"""Every assignor of the registry against the laws it claims."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.assignors import laws
from tests.strategies import snapshots

from holdfast.core.assignors.registry import ASSIGNORS, assign
from holdfast.core.model.group import Group
from holdfast.errors import ConfigError, InfeasibleError

KNOWN_LAWS = {"balanced", "sticky", "optimal", "keeps-all"}
NOT_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(suppress_health_check=NOT_SLOW)
@given(data=st.data())
def test_assignor_keeps_the_laws_it_claims(name: str, data: st.DataObject) -> None:
    equal = True if ASSIGNORS[name].needs_equal_subscriptions else None
    laws.check(data.draw(snapshots(equal=equal)), name)


@settings(suppress_health_check=NOT_SLOW)
@given(
    group=snapshots(),
    max_skew=st.integers(0, 3),
    hysteresis=st.sampled_from([0, 5, 10.0, 100]),
    weights=st.dictionaries(
        st.sampled_from("abcdefgh"), st.sampled_from([0.5, 1, 2.5]), max_size=3
    ),
    max_moves=st.none() | st.integers(0, 4),
)
@example(group={"partitions": {}, "members": []}, max_skew=0, hysteresis=0, weights={}, max_moves=0)
def test_lag_sticky_keeps_its_laws_under_every_option(
    group: dict[str, Any],
    max_skew: int,
    hysteresis: float,
    weights: dict[str, float],
    max_moves: int | None,
) -> None:
    options = {
        "max_skew": max_skew,
        "hysteresis": hysteresis,
        "weights": weights,
        "max_moves": max_moves,
    }
    result = laws.check(group, "lag-sticky", options)
    if max_moves is not None:
        assert result.quality.moved <= max_moves


def test_every_assignor_claims_known_laws_and_known_options() -> None:
    for info in ASSIGNORS.values():
        assert info.laws <= KNOWN_LAWS
        assert info.summary
        with pytest.raises(ConfigError, match="nonsense"):
            assign(Group.from_dict({"partitions": {}, "members": []}), info.name, nonsense=1)


@pytest.mark.parametrize(
    "name", [name for name, info in ASSIGNORS.items() if info.needs_equal_subscriptions]
)
@given(group=snapshots(equal=False))
def test_constrained_refuses_exactly_the_unequal_groups(name: str, group: dict[str, Any]) -> None:
    known = [set(member["topics"]) & set(group["partitions"]) for member in group["members"]]
    unequal = any(topics != known[0] for topics in known)
    try:
        assign(Group.from_dict(group), name)
    except InfeasibleError:
        assert unequal
    else:
        assert not unequal
