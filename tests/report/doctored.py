"""What the doctor names first."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import run


def first_code(dump: Path, *words: object) -> str:
    """Code of the first active finding of the one group in a dump; empty where there is none."""
    done = run("doctor", "--input", dump, "--format", "json", "-q", *words)
    assert done.out, done.err
    (told,) = json.loads(done.out)["groups"]
    codes = [f["code"] for f in told["findings"] if f["active"] and f["severity"] != "info"]
    return codes[0] if codes else ""
