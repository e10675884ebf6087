"""What the doctor names first in each situation of a paged night, as stock clients left it.

``tests/live/situations.py`` played them on a broker; the files are in ``tests/report/captured``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.situations import SITUATIONS
from tests.report.captured.capture_disturbed import LOG, Look, looks
from tests.report.doctored import first_code

from holdfast.cli import spark_progress

FIRST = {one.name: one.first for one in SITUATIONS}
LOOKS = list(looks())


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline runs in this process, so nobody asks for a session of Spark."""
    monkeypatch.delattr(spark_progress, "open_session")


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
def test_the_true_cause_is_named_first(look: Look, tmp_path: Path) -> None:
    assert first_code(look.dump(tmp_path / "dump")) == FIRST[look.group]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
def test_the_log_of_a_broker_changes_nothing_of_it(look: Look, tmp_path: Path) -> None:
    assert first_code(look.dump(tmp_path / "dump"), "--broker-log", LOG) == FIRST[look.group]


def test_every_situation_is_there() -> None:
    assert {look.group for look in LOOKS if look.is_last} == FIRST.keys()
    assert {look.group for look in LOOKS if not look.is_last} == {
        one.name for one in SITUATIONS if one.is_early
    }
