"""Run `make test`, or with ``--all`` the rest of it, `make test-all`.

**Rules**

1. A test belongs to one suite of ``SUITES``: `test`, `test-all` or `slow` (`make soak`).
2. `test-all` repeats nothing of `test`; CI runs the two one after the other.
3. Python keeps what it compiles, also where the caller's environment forbids that: each worker and
   each command that a test starts would compile all of holdfast again, and all tests.
4. A test that takes ``MOST_SECONDS`` is ended with its worker. The log shows what each thread did,
   the test counts as failed, and a new worker runs the others (``tests/scheduling.py``).

Tests of a broker wait most of the time, so two cores need five workers in `make test` and three
in `make test-all`, whose members are more processes. All workers use one broker
(``tests/live/run_broker.py``); Spark's worker starts one of its own. Without a usable
Java the `spark` and `broker` tests are left out with one line that says what to install; in CI that
is an error. Other arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys

from holdfast.errors import HoldfastError
from holdfast.local.java import find_java

SUITES = {"test": "not slow and not every", "test-all": "every and not slow", "slow": "slow"}
WORKERS = {"test": "5", "test-all": "3"}
MOST_SECONDS = 600


def main(arguments: list[str]) -> int:
    """Return pytest's exit code."""
    suite = "test-all" if "--all" in arguments else "test"
    command = [sys.executable, "-m", "pytest", "-n", WORKERS[suite], "-q"]
    command += ["-o", f"faulthandler_timeout={MOST_SECONDS}"]
    command += ["-o", "faulthandler_exit_on_timeout=true"]
    marks = SUITES[suite]
    try:
        find_java()
    except HoldfastError as error:
        print(f"error: {error}", file=sys.stderr)
        if os.environ.get("CI"):
            return 1
        print("the tests that need Java are left out", file=sys.stderr)
        marks += " and not spark and not broker"
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    others = [word for word in arguments if word != "--all"]
    return subprocess.call([*command, "-m", marks, *others], env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
