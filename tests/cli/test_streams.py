"""What a command writes to stdout arrives whole, however its reader and its disk behave."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from tests.live.waiting import until

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
N_LINES = 5_000
DECODE = [HOLDFAST, "decode", "subscription", "-", "--quiet"]


@pytest.fixture
def lines(tmp_path):
    made = tmp_path / "lines"
    made.write_text("00000000000100017400000000\n" * N_LINES)
    return made


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def environment(request):
    return {**os.environ, "PYTHONUNBUFFERED": request.param}


def waiting_in(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_pipe_that_does_not_wait_and_a_slow_reader(lines, environment):
    """Another program has made the pipe non-blocking, as Node does with what it shares."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    size = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
    with lines.open() as given:
        process = subprocess.Popen(DECODE, stdin=given, stdout=writer, env=environment)
    os.close(writer)
    until(lambda: waiting_in(reader) > size - 8_192 or process.poll() is not None, "a full pipe")
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    assert (process.wait(), told.count(b"\n")) == (0, N_LINES)


def test_a_file_that_can_take_only_a_part_is_an_error(environment, tmp_path):
    """A full disk is alike: a part of a write is taken, and the next one refused."""
    snapshot, target = tmp_path / "snapshot.json", tmp_path / "out"
    group = {"partitions": {"t": 2_000}, "members": [{"id": "C0", "topics": ["t"]}]}
    snapshot.write_text(json.dumps(group))
    command = f"ulimit -f 4; exec {HOLDFAST} assign {snapshot} --format csv > {target}"
    done = subprocess.run(
        ["bash", "-c", command], env=environment, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode != 0
    assert b"File too large" in done.stderr
