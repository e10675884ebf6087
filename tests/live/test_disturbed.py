"""Situations of an on-call night, by stock clients: the doctor names the true cause first.

`make soak` plays all of them, side by side, and those at the default ``max.poll.interval.ms``. What
they left once is in ``tests/report/captured``; a rebalance in progress is in
``tests/live/test_rebalance_now.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.live.crew import fresh
from tests.live.disturbed import Left, Stage, Writer, alone, left_by
from tests.live.situations import LONG, SITUATIONS, Situation
from tests.report.doctored import first_code

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def played(bootstrap: str, situations: Sequence[Situation], folder: Path) -> dict[str, Left]:
    """Play them side by side; what each left."""
    found: dict[str, Left] = {}
    errors: list[BaseException] = []
    writer = Writer(bootstrap)

    def live(situation: Situation) -> None:
        (folder / situation.name).mkdir()
        group = fresh(situation.name)
        try:
            with Stage(bootstrap, group, folder / situation.name, writer) as stage:
                situation.play(stage)
                found[situation.name] = alone(left_by(bootstrap, group), group)
        except BaseException as error:  # raised where the test looks
            errors.append(error)

    threads = [threading.Thread(target=live, args=(one,)) for one in situations]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    writer.close()
    if errors:
        raise errors[0]
    return found


@pytest.mark.parametrize("situations", [SITUATIONS, LONG], ids=["all", "at the default interval"])
def test_the_true_cause_is_named_first(broker, tmp_path: Path, monkeypatch, situations) -> None:
    monkeypatch.delattr(
        "holdfast.fleet.pipeline.session.open_session"
    )  # the pipeline runs in this process
    (tmp_path / "members").mkdir()
    left = played(broker.bootstrap, situations, tmp_path / "members")
    found = {name: first_code(one.dump(tmp_path / f"{name}-dump")) for name, one in left.items()}
    assert found == {one.name: one.first for one in situations}
