"""Java programs of these tests: compiled once, and one JVM for every query of Kafka's tools."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import Lock, Timer

from tests.drafts import draft_of

from holdfast.local.java import find_java

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0


def java(class_path: str, *arguments: str, heap_mb: int = 128) -> list[str]:
    """A command that runs a class which starts soon and does little."""
    options = [f"-Xmx{heap_mb}m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [str(find_java().executable), *options, "-cp", class_path, *arguments]


def program(name: str, class_path: str, *arguments: str) -> list[str]:
    """A command that runs a program of ``tests/java``."""
    return java(f"{compiled(name, class_path)}{os.pathsep}{class_path}", name, *arguments)


@cache
def compiled(name: str, class_path: str) -> Path:
    """The classes of a program; the compiler takes longer than what it compiles to start."""
    source = ROOT / "tests" / "java" / f"{name}.java"
    made_of = (source.read_text(encoding="utf-8"), str(find_java().home), class_path)
    key = blake2b(repr(made_of).encode(), digest_size=8).hexdigest()
    folder = ROOT / "build" / "java" / f"{name}-{key}"
    if not folder.exists():
        compiler = ("-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none")
        with draft_of(folder) as draft:
            words = [str(find_java().executable), *compiler, "-d", str(draft), "-cp", class_path]
            subprocess.run([*words, str(source)], check=True)
    return folder


class Tools:
    """A JVM that runs Kafka's command line tools, one after the other, from the first question."""

    def __init__(self, class_path: str):
        self._class_path = class_path
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()
        atexit.register(self._end)

    def ask(self, tool: str, *arguments: str) -> tuple[int, str, str]:
        """The exit code of a tool's class, and what it printed to stdout and to stderr."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            timer = Timer(PATIENCE_SECONDS, process.kill)
            timer.start()
            try:
                process.stdin.write(json.dumps([tool, *arguments]) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            finally:
                timer.cancel()
        assert answer, f"{tool} has not answered: {arguments}"
        code, out, err = json.loads(answer)
        return code, out, err

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                program("LiveTools", self._class_path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
