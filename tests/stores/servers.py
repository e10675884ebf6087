"""Storage servers on loopback that end with their test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def moto() -> Iterator[dict[str, str]]:
    """Moto's S3; yields the environment by which it is found."""
    command = [sys.executable, str(HERE / "moto_process.py")]
    with ended(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ) as server:
        assert server.stdout is not None
        yield CREDENTIALS | {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}"
        }


@contextmanager
def ended(server: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process, ended with the block; one that reads its standard input ends with us too."""
    try:
        yield server
    finally:
        server.kill()
        server.communicate()
