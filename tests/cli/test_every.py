"""``watch --every``: a duration with its unit; anything else is refused at once."""

from __future__ import annotations

import pytest
from tests.cli.running import run

from holdfast.cluster.cluster import LiveCluster
from holdfast.fleet.pipeline.batches import watch as job


@pytest.mark.parametrize(
    ("said", "seconds"), [("30s", 30), ("5m", 300), ("500ms", 0.5), ("PT5M", 300), (None, None)]
)
def test_the_unit_is_understood(monkeypatch, tmp_path, said, seconds):
    asked = []
    monkeypatch.setattr(LiveCluster, "check", lambda self: None)
    monkeypatch.setattr(LiveCluster, "partition_ends", lambda self, topic: {})
    monkeypatch.setattr(job, "watch", lambda *_, **more: asked.append(more["every_seconds"]))
    words = () if said is None else ("--every", said)
    done = run("watch", "-b", "127.0.0.1:1", "-o", tmp_path / "tables", "-q", *words)
    assert (done.code, asked) == (0, [seconds]), done.err
