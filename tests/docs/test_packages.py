"""The docstring of a package says where its modules are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "holdfast"
PACKAGES = ["adapters", "demo", "jvm", "machine", "model", "pipeline", "report", "sim", "wire"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_named(package: str) -> None:
    told = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
    names = re.findall(r"``([a-z_0-9]+)(/|_\*)?``", told)
    alone = {name for name, more in names if not more}
    families = tuple(f"{name}_" for name, more in names if more == "_*")
    modules = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert {m for m in modules if not families or not m.startswith(families)} <= alone
    assert alone - modules <= {"write", "read_tables", "__consumer_offsets"}
    assert all(any(m.startswith(family) for m in modules) for family in families)
