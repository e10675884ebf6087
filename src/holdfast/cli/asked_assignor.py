"""The assignor that a command is asked for: a name, or ``module:function`` of the user.

**Rules.** ``module:function`` is imported as ``python -m`` would, from the current folder first. It
names what :func:`holdfast.assignor` made, or a function of members, topics and claims.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.core.assignors.registry import Named, find


def asked_assignor(text: str) -> Named:
    """A name of the registry, or the user's own assignor.

    Raises
    ------
    ConfigError
        An unknown name; no such module or function; something that is no assignor.
    """
    if ":" not in text:
        return find(text).name
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    # A command that is asked for a name does not load what members need.
    from holdfast.members.own_assignors import computing

    return computing(text)
