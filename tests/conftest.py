"""What the whole run shares: one real broker, one Spark session, each started once.

Run as ``pytest -n 2 --dist loadgroup``, all tests that need one of them go to one worker each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from holdfast.adapters.broker import Broker

# No deadlines: a shared machine is slow at times. `HYPOTHESIS_PROFILE` names another profile.
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=60, database=None
)
settings.register_profile("ci", deadline=None, max_examples=300, database=None)
settings.register_profile("exhaustive", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send every test that needs Spark to one worker, and those of the broker to another."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("broker") is not None:
            item.add_marker(pytest.mark.xdist_group("broker"))


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One real broker for the run; use a topic and a group of your own."""
    from holdfast.adapters.broker import Broker

    with Broker.start() as running:
        yield running
