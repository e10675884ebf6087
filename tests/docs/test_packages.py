"""The docstring of a package says where its modules and rooms are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.core.assignors.registry import ASSIGNORS

ROOT = Path(__file__).parents[2] / "src" / "holdfast"
PACKAGES = sorted(
    room
    for path in ROOT.rglob("__init__.py")
    if (room := str(path.parent.relative_to(ROOT))) not in (".", "cli/commands")
)
"""Every package but the root, and the commands: ``holdfast --help`` lists those."""
OTHER_WORDS = {
    "__consumer_offsets",
    "decode",
    "holdfast",
    "sticky",
}
"""Words between double backticks that name no module."""
ASSIGNOR_MODULES = {info.function.__module__.rpartition(".")[2] for info in ASSIGNORS.values()}
"""The registry lists these: a new assignor is its file and its row."""


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_named(package: str) -> None:
    folder = ROOT / package
    told = (folder / "__init__.py").read_text(encoding="utf-8")
    names = re.findall(r"``([a-z_0-9]+)(/|_\*)?``", told)
    alone = {name for name, more in names if not more}
    families = tuple(f"{name}_" for name, more in names if more == "_*")
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    if package == "core/assignors":
        modules -= ASSIGNOR_MODULES
        alone -= ASSIGNOR_MODULES
    rooms = {path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert {m for m in modules if not families or not m.startswith(families)} <= alone
    assert alone - modules <= OTHER_WORDS
    assert {name for name, more in names if more == "/"} == rooms
    assert all(any(m.startswith(family) for m in modules) for family in families)
