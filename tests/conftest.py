"""What the whole run shares: one real broker, one Spark session, each started once.

Run as ``pytest -n 2 --dist loadgroup``, all tests that need one of them go to one worker each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.adapters.broker import Broker


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
