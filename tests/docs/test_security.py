"""SECURITY.md says what the code does: its files, numbers and settings exist."""

import inspect
import re
from pathlib import Path

from holdfast.cli.commands import serve
from holdfast.cli.settings import FILE_NAME, NAMED_BY
from holdfast.core.assignors import claims
from holdfast.core.machine.leader import leader_round, state_reconstruction
from holdfast.fleet.report.serving import server
from holdfast.fleet.tables.storage.file_system import FILE_MODE, FOLDER_MODE
from holdfast.local import jars
from holdfast.members.config.settings import KEYS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


def test_every_file_exists() -> None:
    files = re.findall(r"`((?:src|tests|tools)/[\w/.]+|requirements\.lock)`", PAGE)
    assert len(files) >= 4
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_what_the_page_claims_of_members_is_a_law_or_a_rule_of_the_code() -> None:
    rules = " ".join(
        " ".join((inspect.getdoc(module) or "").split())
        for module in (claims, state_reconstruction)
    )
    for rule in (
        "A claim of a generation that cannot exist yet is ignored.",
        "No remaining time in the leader state exceeds this leader's configuration",
        "Of the shards that cover an identity, those of the newest generation say",
    ):
        assert rule in rules


def test_settings_exist() -> None:
    assert {"security.protocol", "sasl.mechanism"} <= KEYS.keys()
    source = inspect.getsource(jars)
    assert {FILE_NAME, NAMED_BY, "HOLDFAST_JARS"} <= set(re.findall(r"`([\w.]+)`", PAGE))
    assert "HOLDFAST_JARS" in source


def test_numbers_are_those_of_the_code() -> None:
    assert f"with {leader_round.MOST_MORE:,} topics more than the leader's own" in WORDS
    listen = inspect.signature(serve.run).parameters["listen"].default
    assert (
        f"`holdfast serve` listens on {listen}, holds at most {server.MAX_CLIENTS} clients" in WORDS
    )
    assert f"on which no byte came or went for {server.SILENT_S} seconds" in WORDS
    assert f"wants a token, of {serve.LEAST_TOKEN} characters or more" in WORDS
    assert f"mode 0{FILE_MODE:o} and new folders 0{FOLDER_MODE:o}" in WORDS
