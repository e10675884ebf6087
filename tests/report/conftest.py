from collections.abc import Iterator
from typing import Any

import pytest
from tests.report.browser import browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The one browser of the run."""
    with browser() as started:
        yield started
