"""Names of a drop-in's module beside its classes: what is imported late, and the client's own.

**Rules.** A program changes the module in its import, so every public name of the client is there:
ours where there is one, else the client's. A consumer of the client's that has none of ours in its
place is not handed on: who asks a drop-in for a consumer gets a member of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def name_of(module: str, name: str, late: Mapping[str, str], client: ModuleType) -> Any:
    """What a drop-in's ``module`` has under a name that is not among its globals.

    Parameters
    ----------
    late : mapping of str to str
        Names of ours that are imported when they are asked for: each as ``module:name``.
    client : module
        The client.

    Raises
    ------
    AttributeError
        There is no such name, or this version of the client lacks what it stands on.
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
