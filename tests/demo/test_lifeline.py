"""A process of the demo ends when it is asked to, whatever it is doing."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from holdfast.cli.demo.lifeline import watch
stop = watch()
print("up", flush=True)
while not stop.wait(0):
    pass
"""


def test_a_signal_may_come_while_the_process_looks_for_it() -> None:
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            process.terminate()
            try:
                assert process.wait(20) == 0
            finally:
                process.kill()
