"""Command lines that are suggested: where the code makes them, and which were made in a run."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.report.fleet import Script, tables
from tests.report.test_findings import CASES
from tests.source import SOURCE, trees

from holdfast.cli.app import app
from holdfast.core import command_lines

MAKERS = {"holdfast_line", "kafka_line"}
"""Functions that write a command line."""
CHOOSERS = {
    "fleet/analysis/findings": {"on_group", "describe", "to_cooperative", "_show_rebalances"}
}
"""Functions that choose one, by the package that has them."""


@dataclass(frozen=True, order=True)
class Site:
    """A call of one of ``MAKERS``."""

    file: str
    first: int
    last: int


def sites() -> set[Site]:
    """Every call in the code that makes a command line."""
    found = set()
    for name, tree in trees().items():
        makers = MAKERS | CHOOSERS.get(str(Path(name).parent), set())
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in makers
            ):
                found.add(Site(name, node.lineno, node.end_lineno or node.lineno))
    return found


@dataclass
class Made:
    """What was suggested while somebody listened."""

    lines: list[str] = field(default_factory=list)
    frames: set[tuple[str, int]] = field(default_factory=set)

    def passed(self, site: Site) -> bool:
        """Whether a line was made by this call."""
        return any(f == site.file and site.first <= n <= site.last for f, n in self.frames)


@contextmanager
def listening() -> Iterator[Made]:
    """Note every command line that is made, and the calls that led to it."""
    made, write = Made(), command_lines._line

    def noted(*words: str) -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(SOURCE):
                made.frames.add((str(path.relative_to(SOURCE)), frame.f_lineno))
            frame = frame.f_back
        made.lines.append(write(*words))
        return made.lines[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command_lines, "_line", noted)
        yield made


def words_of(line: str) -> list[str]:
    """A command line as bash splits it."""
    if "$'" not in line:
        return shlex.split(line)
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    return said.stdout.decode().split("\0")[:-1]


def parse(line: str) -> list[str]:
    """Words of a command line of ours, behind ``holdfast``; it is parsed, and not run."""
    first, *words = words_of(line)
    assert first == "holdfast", line
    if words[0] == "--help":
        assert "--help" in app.context_settings["help_option_names"]
        return words
    known = [word for word in words[1:] if word != "--help"]
    if len(known) == len(words) - 1:
        command = app.get_command(None, words[0])
        assert command is not None, line
        # What a reader is to put in the place of a word in capitals.
        placed = {command_lines.SERVERS: "localhost:9092", command_lines.CLIENT: "java"}
        filled = [placed.get(word, word).split("|")[0] for word in known]
        command.make_context(words[0], filled)
    return words


def fleet_of(names: dict[str, str], topic: str = "t") -> dict[str, Any]:
    """Tables of one group for each code of the doctor, in which that code is found.

    ``names`` has the name of each code's group; each of them reads the topic.
    """
    scripts = [Script("clock", {}).settle(1200, ["z"], {})]  # the window ends here
    for code, name in names.items():
        script = CASES[code][0]()
        script.group = name
        for rows in script.rows.values():
            for row in rows:
                row["group"] = name
                if row.get("topic") == "t":
                    row["topic"] = topic
                if "subscribed_topics" in row:
                    row["subscribed_topics"] = [topic]
        scripts.append(script)
    return tables(*scripts)
