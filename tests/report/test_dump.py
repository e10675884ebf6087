"""A dump at the command line: through the pipeline, to findings and a page; without Spark."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import run
from tests.pipeline import fleet
from tests.pipeline.histories import generation


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps run in this process, so nobody asks for a session."""
    monkeypatch.delattr("holdfast.fleet.pipeline.session.open_session")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two members under range; every ten seconds one goes, and comes back."""
    both = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}
    alone = {"a-1": {"t": [0, 1, 2, 3]}}
    history: list[Any] = []
    for i in range(4):
        back = {"a-1": {"t": [0, 1]}, f"b-{i + 2}": {"t": [2, 3]}}
        history.append(generation("etl", 2 * i + 1, back if i else both, at=100 + 20 * i))
        history.append(generation("etl", 2 * i + 2, alone, at=110 + 20 * i))
    records = [(g["group"], g["timestamp"], fleet.classic(g)) for g in history]
    commits = [("etl", 175 + p, fleet.commit("etl", "t", p, 5, at=175 + p)) for p in range(4)]
    ends = [("t", p, 0, 12) for p in range(4)]
    folder = tmp_path_factory.mktemp("dump")
    made: Path = fleet.write_dump(
        folder / "dump", records + commits, topics=[("t", 4)], offsets=ends
    )
    return made


def test_page_of_a_dump_has_its_rebalances_and_lag(dump: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    done = run("report", "--input", dump, "-o", page, "-q")
    assert done.code == 0, done.err
    text = page.read_text(encoding="utf-8")
    assert "28 records behind in 4 of 4 partitions" in text
    assert "deploy churn" in text
