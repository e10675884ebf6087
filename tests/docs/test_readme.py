"""README.md: its examples run; its commands, targets and links exist, those of docs/ too."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import run

from holdfast import Consumer, Group
from holdfast.cli import app as cli_app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DROP_IN, MEMBER, LIBRARY = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
HERE = ("assign", "simulate", "upgrade-check", "decode")


def commands(page: str) -> list[list[str]]:
    """Words of the commands in a page's blocks and between its backticks."""
    text = page.replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.M | re.S)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(holdfast [^`\n]+)`", text)
    lines = [line for line in lines if line.startswith("holdfast ") and " COMMAND " not in line]
    split = (re.split(r" [;&|>]|; ", line)[0] for line in lines)
    return [shlex.split(line, comments=True) for line in split]


RUN = [words for words in commands(README) if words[1] in HERE]


def test_the_library_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(LIBRARY, "README.md", "exec"), {})
    told = [line.split("  # ")[1] for line in LIBRARY.splitlines() if line.startswith("print(")]
    printed = capsys.readouterr().out.splitlines()
    assert [t[: len(p)] for t, p in zip(told, printed, strict=True)] == printed
    assert len(printed) == 2


def test_the_members_take_what_the_page_gives_them() -> None:
    imports = [line for line in (DROP_IN + MEMBER).splitlines() if line.startswith("from ")]
    assert len(imports) == 2
    exec("\n".join(imports), {})
    config = re.search(r"Consumer\((\{.*?\})\)", MEMBER, re.S)
    assert config is not None
    made = Consumer(json.loads(config[1]))
    assert [assignor.name for assignor in made.assignors] == ["cooperative-sticky"]


@pytest.mark.parametrize("words", RUN, ids=" ".join)
def test_commands_without_a_cluster_run(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(LIBRARY, names)
    assert isinstance(names["group"], Group)
    (tmp_path / "snapshot.json").write_text(json.dumps(names["group"].to_dict()), encoding="utf-8")
    done = run(*words[1:])
    assert (done.code, done.out != "") == (0, True), done.err


def test_a_reader_is_through_soon() -> None:
    assert len(re.sub(r"```.*?```", "", README, flags=re.S).split()) <= 600


def test_every_command_without_a_cluster_is_run() -> None:
    assert {words[1] for words in commands(README)} >= set(HERE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_exists(page: Path) -> None:
    root = cli_app.app
    for words in commands(page.read_text(encoding="utf-8")):
        command: Any = root if words[1].startswith("-") else root.get_command(None, words[1])
        command = getattr(command, "commands", {}).get(words[2] if words[2:] else "", command)
        known = {flag for p in command.params for flag in p.opts} | {"--help", "--debug"}
        assert {w.split("=")[0] for w in words[1:] if w.startswith("-") and w != "-"} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"`make ([\w-]+)|^make ([\w-]+)", text, re.M)) <= {
        pair for t in targets for pair in ((t, ""), ("", t))
    }
