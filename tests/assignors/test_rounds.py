"""Rounds of a cooperative group: what was withheld arrives, and then it is over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.strategies import snapshots

from holdfast.core.assignors.registry import follow
from holdfast.core.model.group import Group


@given(snapshots())
@pytest.mark.parametrize("name", ["cooperative-sticky", "constrained-cooperative-sticky"])
def test_rounds_go_on_until_nothing_is_withheld(name: str, snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    if group.n_sets > 1 and name.startswith("constrained"):
        return
    *earlier, last = follow(group, name)
    assert all(result.withheld for result in earlier)
    assert last.owner.tolist() == last.target.tolist()


@given(snapshots())
def test_an_eager_assignor_needs_one_round(snapshot: dict[str, Any]) -> None:
    assert len(follow(Group.from_dict(snapshot), "sticky")) == 1
