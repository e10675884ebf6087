"""Frameworks from the registry, unchanged, in a rolling bounce with Design II.

Each test makes an environment with the framework and the wheel of this tree, and starts the app
beside this file that docs/frameworks.md shows.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.frameworks.rolling import PODS, RollingApp, bounce_all, was_in_flight
from tests.live.offsets_log import Commit, Generation
from tests.packaging.building import built, environment

HERE = Path(__file__).parent
FRAMEWORKS = {
    "arroyo": ["sentry-arroyo==2.48.0", "confluent-kafka==2.16.1"],
    "quix": ["quixstreams==3.28.1", "confluent-kafka==2.12.2"],
    "faststream_confluent": ["faststream[confluent]==0.7.8", "confluent-kafka==2.16.1"],
    "faststream_aiokafka": ["faststream[kafka]==0.7.8", "aiokafka==0.14.0"],
    "faust": ["faust-streaming==0.15.3", "aiokafka==0.14.0"],
}
"""App -> the versions that were tested."""

pytestmark = [pytest.mark.slow, pytest.mark.broker]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_rolling_bounce(name, wheel, broker, tmp_path):
    """Nothing is lost, nothing is twice but what was in flight, nothing moves."""
    packages = FRAMEWORKS[name]
    holdfast = f"kafka-holdfast[members] @ {wheel.as_uri()}"
    python = environment(tmp_path / "venv", [holdfast, *packages])
    folder = tmp_path / "event-logs"
    folder.mkdir()
    with RollingApp(broker.bootstrap, [str(python), str(HERE / f"{name}_app.py")], folder) as app:
        owned = bounce_all(app)

        assert app.unprocessed() == []
        log, twice = app.log(), app.twice()
        more = {place: who for place, who in twice.items() if not was_in_flight(log, *place, who)}
        assert more == {}

        # The restarted pod has what it had before, and what the others own never changed.
        for pod in PODS:
            assert owned[f"{pod}-2"] == owned[f"{pod}-1"]
        generations = [entry for entry in log if isinstance(entry, Generation)]
        first = {f"{pod}-1" for pod in PODS}
        since = [g.number for g in generations if g.owned.keys() >= first][-1]
        for generation in generations:
            for process, partitions in generation.owned.items():
                is_moved = generation.number >= since and partitions != owned[process]
                assert not (is_moved and partitions), generation
        reached = Counter()
        for commit in (entry for entry in log if isinstance(entry, Commit)):
            assert commit.offset >= reached[commit.partition], f"{commit} goes back"
            reached[commit.partition] = commit.offset
        assert reached == app.sent
        print(f"{name}: {sum(app.sent.values())} records, {len(twice)} twice, all in flight")
