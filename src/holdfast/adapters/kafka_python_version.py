"""What is said where kafka-python is missing or too old.

kafka-python 3 moved the modules that assignors and connections come from, so an older one fails
with an import of a name that tells its user nothing.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

NEEDED = (3, 0, 12)
_INSTALL = "pip install 'holdfast[kafka]'"


def explained(error: ImportError) -> ImportError:
    """The error of an import, in words that say what to install.

    Parameters
    ----------
    error : ImportError
        As Python raised it.

    Returns
    -------
    ImportError
        Names the version that is there and the one that is needed; ``error`` itself where
        kafka-python is new enough.
    """
    needed = ".".join(map(str, NEEDED))
    try:
        found = version("kafka-python")
    except PackageNotFoundError:
        return ImportError(f"kafka-python {needed} or newer is needed: {_INSTALL}")
    if _numbers(found) >= NEEDED:
        return error
    return ImportError(f"kafka-python {needed} or newer is needed, found {found}: {_INSTALL}")


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 3.0.12rc1 is (3, 0, 12)."""
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
