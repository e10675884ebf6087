"""The versions of client libraries that holdfast supports; others are refused at import.

**Rules.** The ranges are those of the extras in ``pyproject.toml`` (a test compares them), and
``make soak ARGS="--only clients"`` runs the first and the newest of each against a broker. A
refusal is one sentence with the installed version, the supported ones, and the extra.

**Strategy.** The name of the metadata folder next to a client has its version, so the client need
not be imported. Python's ``importlib.metadata`` is used only without such a folder, because
importing it costs as much as a client does.

References: PyPA specifications, "Recording installed projects" (``NAME-VERSION.dist-info``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Versions of a client library."""

    first: str  # the oldest version
    below: str  # the first version that is too new, "" if every newer one is supported
    module: str  # what is imported

    def __str__(self) -> str:
        return f"{self.first} or newer" + (f", below {self.below}" if self.below else "")

    def has(self, found: str) -> bool:
        """Return whether ``found`` is in the range."""
        at = _numbers(found)
        return _numbers(self.first) <= at and not (self.below and at >= _numbers(self.below))


RANGES = {
    "confluent-kafka": Range(first="2.6.1", below="", module="confluent_kafka"),
    "aiokafka": Range(first="0.12", below="0.15", module="aiokafka"),
    "kafka-python": Range(first="3.0.12", below="3.1", module="kafka"),
}

TESTED = {"kafka-python": frozenset({"3.0.12"})}
"""Versions whose private parts the live tests have run with; other versions are not changed where
that is possible.
"""


def check(client: str) -> None:
    """Refuse a client of :data:`RANGES` that is missing, or has another version: an ImportError."""
    wanted = RANGES[client]
    install = "pip install 'kafka-holdfast[members]'"
    found = version(client)
    if found is None:
        raise ModuleNotFoundError(f"{client} {wanted} is needed: {install}", name=wanted.module)
    if not wanted.has(found):
        raise ImportError(f"{client} {wanted} is needed, found {found}: {install}")


def version(client: str) -> str | None:
    """Return the version of a client library that an import would find; None for none."""
    spec = find_spec(RANGES[client].module)
    if spec is None:
        return None
    start, end = f"{client.replace('-', '_')}-", ".dist-info"
    for home in spec.submodule_search_locations or ():
        for beside in Path(home).parent.glob(f"{start}*{end}"):
            return beside.name.removeprefix(start).removesuffix(end)
    from importlib import metadata

    try:
        return metadata.version(client)
    except metadata.PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: 3.0.12rc1 is (3, 0, 12)."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
