"""The examples of ``docs/assignors.md`` run, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from holdfast.core.assignors.registry import ASSIGNORS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "assignors.md").read_text(encoding="utf-8")


def test_every_example_runs_in_order() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/assignors.md", "exec"), names)
    assert names["even"].name == "lag-sticky"


def test_the_policy_of_the_page_is_the_one_that_runs_live() -> None:
    module = (ROOT / "tests" / "live" / "own_policy.py").read_text(encoding="utf-8")
    _, _, shown = module.partition("\n\n")
    assert f"```python\n{shown}```" in PAGE


def test_every_assignor_and_option_is_described() -> None:
    """Outside the table of traits, which the code writes."""
    before, _, rest = PAGE.partition("<!-- begin:")
    told = before + rest.partition("<!-- end")[2]
    does = before.split("## What each does\n")[1].split("\n## ")[0]
    for name, info in ASSIGNORS.items():
        assert f"`{name}`" in does, f"write a row for {name} under 'What each does'"
        for option in info.options:
            assert f"`{option}`" in told, f"describe the option {option} of {name}"
