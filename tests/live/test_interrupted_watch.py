"""Ctrl-C on a terminal, in the middle of a batch of ``watch``: one line, and exit code 130."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.live.crew import fresh
from tests.live.small_group import small_group
from tests.live.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.every]

PROGRAM = """
import sys
from pathlib import Path
from holdfast.cli.app import main
from holdfast.cli.commands.watch import _Screen

begun = _Screen.before_batch

def told(self, *of):
    begun(self, *of)
    Path(sys.argv[1]).touch()

_Screen.before_batch = told
main(sys.argv[2:])
"""
"""The command, which leaves a file when a batch begins."""


class Terminal:
    """A program on a terminal of its own: its process group gets what is typed."""

    def __init__(self, *words: str):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, *words])
        self.printed = b""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        try:
            while part := os.read(self.terminal, 65_536):
                self.printed += part
        except OSError:  # the program has ended
            return

    def ended(self) -> int:
        """Its exit code."""
        _, status = os.waitpid(self.pid, 0)
        self._reading.join(10)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)

    def lines(self) -> list[str]:
        """What stays on the screen, without the bar."""
        text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", self.printed).decode()
        found = [line.replace("^C", "").strip() for line in re.split(r"[\r\n]+", text)]
        return [line for line in found if line and not line.startswith("watch, stage")]


@pytest.mark.parametrize("after_s", [0.1, 1.0, 2.0])
def test_ctrl_c_in_a_batch(broker, tmp_path: Path, after_s: float) -> None:
    begun, tables = tmp_path / "begun", str(tmp_path / "tables")
    with small_group(broker.bootstrap, fresh("group")):
        words = ("watch", "-b", broker.bootstrap, "-o", tables, "--every", "30s")
        program = Terminal("-c", PROGRAM, str(begun), *words)
        until(begun.exists, lambda: f"a batch: {program.lines()}", 240)
        time.sleep(after_s)  # Spark is at work
        os.write(program.terminal, b"\x03")
        code = program.ended()
    assert code == 130, program.lines()
    # A quick machine may be done with the batch by then.
    (line,) = [one for one in program.lines() if not one.startswith(("batch ", "reading "))]
    assert line.startswith("stopped by Ctrl-C"), line
