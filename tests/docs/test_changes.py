"""Fragments of the next release: each is of a kind that CHANGELOG.md has."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_fragment_is_of_a_kind_that_the_change_log_has():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    kinds = {kind["directory"] for kind in options["tool"]["towncrier"]["type"]}
    fragments = sorted((ROOT / "changes").glob("*.md"))
    assert len(fragments) > 1
    assert {
        f.name: f.name.split(".")[-2] for f in fragments if f.name.split(".")[-2] not in kinds
    } == {}
