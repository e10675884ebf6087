"""What the doctor names first in each situation of a paged night, as stock clients left it.

``tests/live/situations.py`` played them on a broker; the files are in ``tests/report/captured``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.situations import LONG, SITUATIONS
from tests.report.captured.capture_disturbed import LOG, Look, looks
from tests.report.doctored import first_code
from tests.suites import further

PLAYED = (*SITUATIONS, *LONG)
FIRST = {one.name: one.first for one in PLAYED}
LOOKS = list(looks())
QUICK = (
    "slow-confluent-8, early",
    "slow-confluent-20-beside-2",
    "slow-aiokafka-20-beside-2",
    "slow-kafka-python-8",
    "slow-java-8-beside-2",
    "crash-kill-9",
    "crash-exception-closes",
    "statefulset-cooperative",
    "deployment-default-ids, early",
    "autoscaler-flapping",
    "hung",
    "hot-partition",
    "retention-loss",
    "abandoned",
    "well",
)
"""In `make test`; all others are in `make test-all`."""


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline runs in this process, so nobody asks for a session of Spark."""
    monkeypatch.delattr("holdfast.fleet.pipeline.session.open_session")


def of(*names: str) -> list[Look]:
    return [look for look in LOOKS if look.name in names]


@pytest.mark.parametrize("look", further(LOOKS, of(*QUICK)), ids=lambda look: look.name)
def test_the_true_cause_is_named_first(look: Look, tmp_path: Path) -> None:
    assert first_code(look.dump(tmp_path / "dump")) == FIRST[look.group]


@pytest.mark.parametrize("look", further(LOOKS, of("crash-kill-9")), ids=lambda look: look.name)
def test_the_log_of_a_broker_changes_nothing_of_it(look: Look, tmp_path: Path) -> None:
    assert first_code(look.dump(tmp_path / "dump"), "--broker-log", LOG) == FIRST[look.group]


def test_every_situation_is_there() -> None:
    assert {look.group for look in LOOKS if look.is_last} == FIRST.keys()
    assert {look.group for look in LOOKS if not look.is_last} == {
        one.name for one in PLAYED if one.is_early
    }
