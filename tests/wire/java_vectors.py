"""Vectors written by Kafka's own Java classes: where they are, and how to write them again.

``python -m tests.wire.java_vectors`` rewrites the committed files; read the diff.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
PROGRAMS = Path(__file__).parents[1] / "java"
FAMILIES = (
    "consumer_protocol",
    "consumer_protocol_reads",
    "sticky_user_data",
    "connect",
    "offsets_records",
)
STREAMS = "streams_user_data"


def committed(family: str) -> list[dict[str, Any]]:
    """The committed vectors of one family."""
    return json.loads(path_of(family).read_text(encoding="utf-8"))


def path_of(family: str) -> Path:
    return GOLDEN / f"{family}.json"


def regenerated() -> dict[str, str]:
    """Text of every family, as Kafka's classes write it now; needs a JDK and Kafka's jars."""
    from holdfast.local.jars import broker_jars, resolve
    from holdfast.local.java import find_java

    connect = resolve(["org.apache.kafka:connect-runtime:4.3.1"], "connect-runtime-4.3.1")
    streams = resolve(["org.apache.kafka:kafka-streams:4.3.1"], "kafka-streams-4.3.1")
    java = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-cp"]
    # The broker's jars come first: both have Jackson, in versions of their own.
    found = _written([*java, _joined(*broker_jars(), *connect)], "GoldenVectors", FAMILIES)
    return found | _written([*java, _joined(*streams)], "StreamsVectors", (STREAMS,))


def _joined(*jars: Path) -> str:
    return ":".join(map(str, jars))


def _written(java: list[str], program: str, families: tuple[str, ...]) -> dict[str, str]:
    """What a program of ours writes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*java, str(PROGRAMS / f"{program}.java"), folder]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert answer.returncode == 0, answer.stderr
        return {
            family: (Path(folder) / f"{family}.json").read_text(encoding="utf-8")
            for family in families
        }


if __name__ == "__main__":
    for name, text in regenerated().items():
        path_of(name).write_text(text, encoding="utf-8")
