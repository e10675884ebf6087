"""The syntax trees of ``src/holdfast``, each parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent


@cache
def trees() -> dict[str, ast.Module]:
    """Every tree by its file, such as ``core/names.py``."""
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


@cache
def modules() -> dict[str, ast.Module]:
    """Every tree by its dotted name, such as ``holdfast.core.names``."""
    found = {}
    for file, tree in trees().items():
        parts = ("holdfast", *Path(file).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = tree
    return found
