from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import browser

from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.tables.reading import Tables, open_tables

CAPTURED = Path(__file__).parent / "captured" / "dump"


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker has the browser; a test that needs Spark as well opens one of its own."""
    for item in items:
        needs = getattr(item, "fixturenames", ())
        if "chromium" in needs and item.get_closest_marker("spark") is None:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser of a module; as long as it runs, an event loop runs in the tests' thread."""
    with browser() as started:
        yield started


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables of groups that lived on a broker, with their findings."""
    folder = tmp_path_factory.mktemp("made")
    run(None, str(CAPTURED), folder)
    return open_tables(folder)
