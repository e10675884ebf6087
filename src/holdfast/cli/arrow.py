"""Arrow in the processes of commands: without pandas, which pyarrow imports where it finds it.

**Rules.** Commands alone do this, since a program of somebody else may want pandas from Arrow.
``import pandas`` itself goes on to work.

**Strategy.** pyarrow looks for pandas once, at its first conversion from Python, to tell its series
from other sequences. The import costs more than a second. So this look is made to find nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """Finds pandas nowhere."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As the base has it."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not for commands", name=fullname)
        return None


def load_arrow() -> None:
    """Import pyarrow, and let it look for pandas in vain."""
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    blocked = _NoPandas()
    sys.meta_path.insert(0, blocked)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(blocked)
