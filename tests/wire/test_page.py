"""``docs/wire.md`` says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.wire import test_memory

from holdfast.cli.app import main
from holdfast.cli.commands.decode import NAMES
from holdfast.core.wire.many.offsets_batch import CHUNK_BYTES, CHUNK_RECORDS, REASONS

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")


def test_reasons_and_their_codes() -> None:
    told = re.findall(r"^\| (\d+) \| `([a-z0-9-]+)` \|", PAGE, re.M)
    assert told == [(str(code), str(reason)) for code, reason in enumerate(REASONS)]


def test_every_schema_of_the_command_line() -> None:
    rows = [line.split("|")[5] for line in PAGE.splitlines() if line.count("|") == 6]
    assert {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)} >= set(NAMES)


def test_bounds() -> None:
    for factor in (test_memory.SCALAR_FACTOR, test_memory.BATCH_FACTOR, test_memory.FRAME_FACTOR):
        assert f"below {factor} times" in PAGE
    assert f"{CHUNK_RECORDS:,} records or {CHUNK_BYTES >> 20} MiB" in PAGE


EXAMPLES = re.findall(r"^\$ holdfast (.*)\n(.*)$", PAGE, re.M)


@pytest.mark.parametrize(("command", "answer"), EXAMPLES)
def test_examples(command: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(command.split())
    assert capsys.readouterr().out.strip() == answer


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
