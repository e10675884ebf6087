"""The syntax trees of ``src/holdfast``, each parsed once in a process.

They are a million objects that stay: each later collection of garbage would walk through them, so
they are frozen. A test that asks for them belongs to the group ``TREES``: one worker has them.
"""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
TREES = pytest.mark.xdist_group("trees")


@cache
def trees() -> dict[str, ast.Module]:
    """Every tree by its file, such as ``core/names.py``."""
    gc.collect()
    gc.disable()
    try:
        return {
            str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(SOURCE.rglob("*.py"))
        }
    finally:
        gc.freeze()
        gc.enable()


@cache
def modules() -> dict[str, ast.Module]:
    """Every tree by its dotted name, such as ``holdfast.core.names``."""
    found = {}
    for file, tree in trees().items():
        parts = ("holdfast", *Path(file).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = tree
    return found
