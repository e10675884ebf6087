"""Situations of an on-call night, by stock clients: the doctor names the true cause first.

`make test-all` has a short one of each kind, in parallel. `make soak` has all of them, and those
at the default ``max.poll.interval.ms``. What they left once is in ``tests/report/captured``; a
rebalance in progress is in ``tests/live/test_rebalance_now.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.live.crew import fresh
from tests.live.disturbed import (
    AIOKAFKA,
    CONFLUENT,
    JAVA,
    KAFKA_PYTHON,
    Left,
    Stage,
    Writer,
    left_by,
)
from tests.live.situations import (
    CRASH,
    DEPLOY,
    LONG,
    SITUATIONS,
    SLOW,
    Situation,
    crash_loop,
    deployment,
    slow,
    statefulset,
)
from tests.report.doctored import first_code

from holdfast.cli import spark_progress

pytestmark = pytest.mark.broker

SHORT = (
    *(
        Situation(
            name=f"slow-{client}",
            play=slow(client, 8, healthy=healthy, times=2, commits="batch"),
            truth="works 12 s on a batch, and max.poll.interval.ms is 8 s",
            first=SLOW,
        )
        for client, healthy in ((CONFLUENT, 2), (AIOKAFKA, 1), (KAFKA_PYTHON, 1), (JAVA, 0))
    ),
    Situation(
        name="crash-loop",
        play=crash_loop(closes=True, times=6),
        truth="one of three processes dies of an exception, six times",
        first=CRASH,
    ),
    Situation(
        name="statefulset",
        play=statefulset("cooperative-sticky", deploys=1),
        truth="a deploy under the same client ids",
        first=DEPLOY,
    ),
    Situation(
        name="deployment",
        play=deployment("", deploys=1),
        truth="a deploy under new client ids",
        first=DEPLOY,
    ),
)


def played(
    bootstrap: str, situations: Sequence[Situation], folder: Path, pace: float = 1.0
) -> dict[str, Left]:
    """Play them side by side; what each left."""
    found: dict[str, Left] = {}
    errors: list[BaseException] = []
    writer = Writer(bootstrap)

    def live(situation: Situation) -> None:
        (folder / situation.name).mkdir()
        group = fresh(situation.name)
        try:
            with Stage(bootstrap, group, folder / situation.name, writer, pace) as stage:
                situation.play(stage)
                found[situation.name] = left_by(bootstrap, group)
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


def check(
    bootstrap: str,
    situations: Sequence[Situation],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    pace: float = 1.0,
) -> None:
    monkeypatch.delattr(spark_progress, "open_session")  # the pipeline runs in this process
    (folder / "members").mkdir()
    left = played(bootstrap, situations, folder / "members", pace)
    found = {name: first_code(one.dump(folder / f"{name}-dump")) for name, one in left.items()}
    assert found == {one.name: one.first for one in situations}


@pytest.mark.slow
def test_the_true_cause_is_named_first(broker, tmp_path: Path, monkeypatch) -> None:
    check(broker.bootstrap, SHORT, tmp_path, monkeypatch)


@pytest.mark.slow
def test_in_all_situations(broker, tmp_path: Path, monkeypatch) -> None:
    check(broker.bootstrap, SITUATIONS, tmp_path, monkeypatch)


@pytest.mark.slow
def test_at_the_default_interval(broker, tmp_path: Path, monkeypatch) -> None:
    check(broker.bootstrap, LONG, tmp_path, monkeypatch)
