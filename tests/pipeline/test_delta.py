"""Spark's own reader of Delta finds the rows that holdfast finds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.pipeline.test_deployment import run
from tests.pipeline.test_kill import lived

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # fetches its jars, and takes a minute


def test_delta_tables_are_the_tables(tmp_path):
    script = Path(__file__).with_name("with_delta.py")
    dump = lived(tmp_path / "dump")
    root = str(Path(__file__).parents[2])
    said = json.loads(
        run([sys.executable, str(script), str(dump), str(tmp_path)], PYTHONPATH=root)[-1]
    )
    assert said["differing"] == []
    assert said["rows"]["rebalances"] > 3 and said["rows"]["offset_commits"] > 3
