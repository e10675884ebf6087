"""The examples of ``docs/assignors.md`` run, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from holdfast.core.assignors.registry import ASSIGNORS

PAGE = (Path(__file__).parents[2] / "docs" / "assignors.md").read_text(encoding="utf-8")


def test_every_example_runs_in_order() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/assignors.md", "exec"), names)
    assert names["even"].name == "lag-sticky"


def test_every_assignor_and_option_is_on_the_page() -> None:
    for name, info in ASSIGNORS.items():
        assert f"`{name}`" in PAGE
        for option in info.options:
            assert f"`{option}`" in PAGE
