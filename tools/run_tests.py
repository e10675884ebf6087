"""Run the whole test suite: three workers, one Spark session, two brokers.

Two of the three wait for their broker most of the time, so two cores are busy and no worker is left
to run alone in the end.

Without a usable Java the `spark` and `broker` tests are left out with one line that says what to
install; in CI that is an error. Arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys

from holdfast.errors import HoldfastError
from holdfast.jvm.java import find_java


def main(arguments: list[str]) -> int:
    """Return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-n", "3", "--dist", "loadgroup", "-q"]
    marks = "not slow"
    try:
        find_java()
    except HoldfastError as error:
        print(f"error: {error}", file=sys.stderr)
        if os.environ.get("CI"):
            return 1
        print("the tests that need Java are left out", file=sys.stderr)
        marks = "not slow and not spark and not broker"
    return subprocess.call([*command, "-m", marks, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
