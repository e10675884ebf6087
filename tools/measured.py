"""The one file of measured figures, and how the lines of a bench get into it.

``python -m tools.measured python bench/rollout.py`` runs a bench, and its JSON lines replace
the lines of the same command in ``bench/measured.jsonl``, with the command and the day.

**Rules.** A figure of README or of a page for users is in that file, once, and a test compares
them. Pages of ``docs/measured/`` that the code writes read it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[1] / "bench" / "measured.jsonl"


def kept(command: str = "", **fields: object) -> list[dict[str, Any]]:
    """The figures of a command, or of all, whose lines have these fields."""
    lines = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())
    wanted = {**({"command": command} if command else {}), **fields}
    return [line for line in lines if wanted.items() <= line.items()]


def replaced(command: str, measured: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the file with these lines instead of the command's old ones."""
    others = [line for line in kept() if line["command"] != command]
    own = [{"command": command, "measured": measured, **line} for line in lines]
    return "".join(json.dumps(line) + "\n" for line in [*others, *own])


def main(words: Sequence[str]) -> int:
    """Run a bench and keep what it prints; its exit code."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(done.stdout)
    if done.returncode == 0:
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        today = datetime.now(UTC).date().isoformat()
        KEPT.write_text(replaced(shlex.join(words), today, lines), encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
