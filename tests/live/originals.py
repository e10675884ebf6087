"""The answers of the originals to the sentences, recorded for the installed versions.

``python -m tests.live.originals --write`` runs every sentence with the original clients on a
broker of its own, and writes ``originals.json`` again: read the difference. Without ``--write`` the
answers have to be those of the file, as in the slow runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.live import all_clients

from holdfast.cluster.versions import RANGES

HERE = Path(__file__).parent
USES = "from tests.live.all_clients import"
"""The line of a file with sentences."""


def main() -> int:
    """Play with the originals; write their answers, if that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options, others = parser.parse_known_args()
    all_clients.writes = options.write
    code = pytest.main(["-q", "-m", "slow", "-k", "originals", *files(), *others])
    if code == 0 and options.write:
        found = {
            "versions": {client: version(client) for client in sorted(RANGES)},
            "answers": dict(sorted(all_clients.recorded.items())),
        }
        all_clients.FILE.write_text(as_text(found), encoding="utf-8")
    return int(code)


def files() -> list[str]:
    """Return the files with sentences."""
    return [str(f) for f in sorted(HERE.glob("test_*.py")) if USES in f.read_text("utf-8")]


def as_text(value: Any, depth: int = 4) -> str:
    if not isinstance(value, dict) or not value or depth == 0:
        return json.dumps(value, ensure_ascii=False)
    pad = "  " * (5 - depth)
    rows = [f"{pad}{json.dumps(k)}: {as_text(v, depth - 1)}" for k, v in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{pad[2:]}}}" + "\n" * (depth == 4)


if __name__ == "__main__":
    sys.exit(main())
