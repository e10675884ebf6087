"""Measure the commands that read tables, over those of very many groups.

``python -m bench.many_groups_read TABLES [doctor-json doctor report serve]`` with tables of
``bench.many_groups`` prints one JSON line for each command: seconds of CPU and of the clock, the
most memory of the process, and bytes of the output. Of ``serve`` it is the time from its start to
the first page, to a page with every group examined, and to the metrics; then that of one request of
each kind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORDS = {
    "doctor-json": ["doctor", "--format", "json"],
    "doctor": ["doctor"],
    "report": ["report"],
}
PIECE = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")


def read(words: list[str], tables: Path, folder: Path) -> dict[str, Any]:
    """Run a command to its end."""
    out = folder / "out"
    command = [sys.executable, "-m", "holdfast", *words, "--input", str(tables), "-q"]
    begin = time.perf_counter()
    process = subprocess.Popen([*command, "-o", str(out)])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    n_bytes = out.stat().st_size
    out.unlink()
    return {
        "exit": process.returncode,
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "seconds": round(seconds, 1),
        "peak_mb": used.ru_maxrss // 1024,
        "output_bytes": n_bytes,
    }


def serve(tables: Path) -> dict[str, Any]:
    """Start the server; request pages until everything is examined, and one of each kind then."""
    command = [sys.executable, "-m", "holdfast", "serve", "--input", str(tables)]
    begin = time.perf_counter()
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            lines = (re.findall(r"(http://\S+)/ until", line) for line in process.stderr)
            address = next(found[0] for found in lines if found)
            found: dict[str, Any] = {}
            for name, seconds in _milestones(address, begin):
                found[name] = {"seconds": seconds, "cpu_s": cpu_s(process.pid)}
                found[name]["peak_mb"] = peak_mb(process.pid)
            worst = json.loads(get(f"{address}/api/groups?size=1"))["rows"][0]["group"]
            for name, path in {
                "page": "/",
                "page_of_group": f"/group?name={worst}",
                "api_groups": "/api/groups?sort=lag&size=100",
                "api_group": f"/api/groups/{worst}",
                "metrics": "/metrics",
            }.items():
                before, cpu = time.perf_counter(), cpu_s(process.pid)
                n_bytes = count(address + path)
                request_s, used = time.perf_counter() - before, cpu_s(process.pid) - cpu
                found[name] = {"seconds": round(request_s, 2), "cpu_s": round(used, 2)}
                found[name]["bytes"] = n_bytes
            return {**found, "peak_mb": peak_mb(process.pid), "cpu_s": cpu_s(process.pid)}
        finally:
            process.terminate()
            process.stderr.read()


def _milestones(address: str, begin: float) -> Iterator[tuple[str, float]]:
    """Yield what the server has reached, and when."""
    get(address + "/")
    yield "first_page", round(time.perf_counter() - begin, 1)
    while True:
        state = json.loads(get(address + "/state"))
        if state["groups"] and state["examined"] == state["groups"]:
            break
        time.sleep(1)
    yield "all_examined", round(time.perf_counter() - begin, 1)
    while True:
        try:
            with urllib.request.urlopen(address + "/metrics", timeout=600):
                break
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
        time.sleep(1)
    yield "metrics_made", round(time.perf_counter() - begin, 1)


def get(address: str) -> bytes:
    """Return an answer."""
    with urllib.request.urlopen(address, timeout=600) as answer:
        return bytes(answer.read())


def count(address: str) -> int:
    """Return the bytes of an answer."""
    with urllib.request.urlopen(address, timeout=600) as answer:
        return sum(len(piece) for piece in iter(lambda: answer.read(PIECE), b""))


def cpu_s(pid: int) -> float:
    """Return seconds of CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return round(sum(map(int, fields[11:13])) / TICKS, 1)


def peak_mb(pid: int) -> int:
    """Return the most memory that a process had."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) // 1024


def main() -> None:
    """Print one line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path)
    parser.add_argument("commands", nargs="*", default=[*WORDS, "serve"])
    asked = parser.parse_args()
    for name in asked.commands:
        with tempfile.TemporaryDirectory() as folder:
            words = WORDS.get(name)
            found = (
                serve(asked.tables) if words is None else read(words, asked.tables, Path(folder))
            )
        line = {"bench": "many_groups", "command": name, "tables": asked.tables.name, **found}
        print(json.dumps({**line, "load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main()
