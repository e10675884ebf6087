"""Kafka 3.6, on which most clusters run: members of every client, a Worker, the commands.

Every version that is pinned, with more of each, is ``python -m tests.live.versions``.
"""

from __future__ import annotations

import pytest
from tests.cli.running import run
from tests.live.chaos import cluster
from tests.live.versions import commands, members, workers

pytestmark = [pytest.mark.broker, pytest.mark.spark]

KAFKA = "3.6.2"


def test_an_older_broker(spark, tmp_path):
    with cluster(1, KAFKA) as (broker, cut):
        found = members(broker, cut, tmp_path / "journals", n_members=4, n_partitions=8)
        print(found)
        assert found["violations"] == []
        assert found["records"] > 0
        workers(broker.bootstrap)
        commands(broker.bootstrap, tmp_path, run)
