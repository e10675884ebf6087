"""The recorded answers are those of the pinned versions, and their sentences exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.live.all_clients import FILE
from tests.live.oldest_and_newest import FILES
from tests.live.originals import files

HERE = Path(__file__).parent
LOCK = HERE.parent.parent / "requirements.lock"
AGAIN = "python -m tests.live.originals --write"


def test_the_answers_are_of_the_pinned_versions():
    recorded = json.loads(FILE.read_text(encoding="utf-8"))["versions"]
    pinned = dict(re.findall(r"^([a-z-]+)==([\d.]+)", LOCK.read_text(), re.MULTILINE))
    assert recorded == {client: pinned[client] for client in recorded}, AGAIN


def test_every_recorded_scenario_exists():
    recorded = json.loads(FILE.read_text(encoding="utf-8"))["answers"]
    told = "".join(file.read_text(encoding="utf-8") for file in sorted(HERE.glob("test_*.py")))
    missing = [name for name in recorded if f"def test_{name}(stage)" not in told]
    assert not missing, AGAIN


def test_the_programs_that_are_run_by_hand_find_their_files():
    assert [name for name in FILES if not (HERE / name).is_file()] == []
    assert len(files()) > 10
