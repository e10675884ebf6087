"""The live tests of members with the oldest and with the newest version of each client library.

``python -m tests.live.oldest_and_newest`` (``make soak ARGS="--only clients"``). The libraries are
installed into a temporary folder that precedes the environment; all else is unchanged.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.cluster.versions import RANGES, Range

HERE = Path(__file__).parent
FILES = (
    *("test_sessions.py", "test_session_rounds.py", "test_session_losses.py"),
    *("test_confluent.py", "test_aiokafka.py", "test_kafka.py", "test_consumer.py"),
    *("test_confluent_logins.py", "test_loading.py"),
)
ASKED = """
import sys
from importlib.metadata import version
print(*(f"{name} {version(name)}" for name in sys.argv[1:]), sep=", ")
"""


def requirement(client: str, versions: Range, age: str) -> str:
    if age == "oldest":
        return f"{client}=={versions.first}"
    return f"{client}>={versions.first}" + (f",<{versions.below}" if versions.below else "")


def run(age: str, others: list[str]) -> int:
    """Install the clients of an age and run the tests; pytest's exit code."""
    wanted = [requirement(client, versions, age) for client, versions in RANGES.items()]
    with tempfile.TemporaryDirectory() as folder:
        uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "-q", "--no-deps"]
        subprocess.run([*uv, "--python", sys.executable, "--target", folder, *wanted], check=True)
        environ = {**os.environ, "PYTHONPATH": folder}
        found = subprocess.run(
            [sys.executable, "-c", ASKED, *RANGES], env=environ, check=True, stdout=subprocess.PIPE
        )
        print(f"{age}: {found.stdout.decode().strip()}", file=sys.stderr)
        words = ["-m", "pytest", "-q", *(str(HERE / name) for name in FILES), *others]
        return subprocess.call([sys.executable, *words], env=environ)


def main() -> int:
    """Run the chosen ages; return the worst exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--age", choices=("oldest", "newest"), action="append")
    options, others = parser.parse_known_args()
    return max(run(age, others) for age in options.age or ("oldest", "newest"))


if __name__ == "__main__":
    sys.exit(main())
