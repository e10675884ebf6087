"""Names of a drop-in's module besides its classes: late imports, and the client's own names.

**Rules.** A program changes the module in its import, so every public name of the client exists:
holdfast's where it has one, else the client's. A consumer class of the client that holdfast does
not replace is not forwarded: every consumer of a drop-in is a member of holdfast.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def name_of(module: str, name: str, late: Mapping[str, str], client: ModuleType) -> Any:
    """Return the object of a drop-in's ``module`` for a name that is not a global.

    Parameters
    ----------
    late : mapping of str to str
        Names of holdfast that are imported on first use: each as ``module:name``.
    client : module
        The client.

    Raises
    ------
    AttributeError
        If the name does not exist, or this version of the client lacks what it needs.
    """
    missing = f"module {module!r} has no attribute {name!r}"
    if name in late:
        home, _, own = late[name].partition(":")
        try:
            return getattr(import_module(home), own)
        except (ImportError, AttributeError) as error:
            raise AttributeError(missing) from error
    if name not in client.__all__ or name.endswith("Consumer"):
        raise AttributeError(missing)
    if hasattr(client, name):
        return getattr(client, name)
    return import_module(f"{client.__name__}.{name}")  # some of the names are modules
