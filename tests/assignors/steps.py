"""Steps of a run, counted and never timed: lines of holdfast, and elements given to NumPy.

Columns do the work, so lines alone would not see a sort of all members in every step of a loop.
Every call of a NumPy function by a module of ``holdfast.core.assignors`` or ``holdfast.core.model``
therefore counts the elements of the arrays it is given, or makes if it is given none. Cleared
memory that is asked for is not counted until something is done with it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.model.group import Group

SOURCE = str(Path(holdfast.__file__).parent)
PACKAGES = ("holdfast.core.assignors.", "holdfast.core.model.")


class Counter:
    """Steps so far."""

    def __init__(self) -> None:
        self.lines = 0
        self.elements = 0

    def on_call(self, frame: FrameType, event: str, _: object) -> Any:
        """For ``sys.settrace``: follow our own frames."""
        return self.on_line if frame.f_code.co_filename.startswith(SOURCE) else None

    def on_line(self, frame: FrameType, event: str, _: object) -> Any:
        """For ``sys.settrace``: count a line."""
        self.lines += event == "line"
        return self.on_line


class CountingNumpy:
    """NumPy, or a function of it, that counts what passes through."""

    def __init__(self, real: Any, counter: Counter):
        self._real = real
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if callable(value) and not isinstance(value, type):
            return CountingNumpy(value, self._counter)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._real(*args, **kwargs)
        # np.add.at reads no more than it changes, and a binary search hardly more than it is asked.
        first = getattr(self._real, "__name__", "") in ("at", "searchsorted")
        given = sum(map(_size, args[first:]))
        if self._real not in (np.zeros, np.empty):
            self._counter.elements += given or _size(made)
        return made


def _size(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, tuple | list):
        return sum(each.size for each in value if isinstance(each, np.ndarray))
    return 0


def count(
    work: Callable[[], object], *, lines: bool = True, packages: tuple[str, ...] = PACKAGES
) -> Counter:
    """Count the steps of ``work``; following lines takes many times as long as the work.

    ``packages``: how the names of the modules begin whose calls of NumPy count.
    """
    counter = Counter()
    for prefix in packages:  # a module that is first imported by the work would count nothing
        package = importlib.import_module(prefix.rstrip("."))
        for found in pkgutil.walk_packages(package.__path__, prefix):
            importlib.import_module(found.name)
    modules = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(packages) and hasattr(module, "np")
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "np", CountingNumpy(np, counter))
        before = sys.gettrace()
        sys.settrace(counter.on_call if lines else before)
        try:
            work()
        finally:
            sys.settrace(before)
    return counter


def steps_of(name: str, snapshot: dict[str, Any], *, lines: bool = True) -> Counter:
    """Steps of one assignor, from normalised claims to the plan."""
    claims = normalise(Group.from_dict(snapshot))
    return count(lambda: ASSIGNORS[name].function(claims), lines=lines)
