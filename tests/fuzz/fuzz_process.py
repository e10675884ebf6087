"""The process that fuzzes: atheris on one target; started by ``tests.fuzz.fuzz_wire``."""

from __future__ import annotations

import sys

import atheris

READERS = ["holdfast.core.wire", "holdfast.fleet.tables"]
with atheris.instrument_imports(include=READERS, enable_loader_override=False):
    from tests.fuzz import targets


def main() -> None:
    """``fuzz_process TARGET [libFuzzer's arguments]``."""
    name, *arguments = sys.argv[1:]
    atheris.Setup([sys.argv[0], *arguments], getattr(targets, name))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
