"""Every world of a fault scenario ends without a broken rule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sim.faults.small_worlds import WORLDS


@pytest.fixture(autouse=True)
def no_rule_is_broken() -> Iterator[None]:
    WORLDS.clear()
    yield
    assert [v for w in WORLDS for v in w.violations] == []
