"""What of a test belongs to `make test`: its first case, or a fifth of its examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

dear = settings(
    max_examples=settings().max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""For a law whose example takes long: a fifth of the examples."""


def further(values: Iterable[Any], stays: Iterable[Any] = ()) -> list[Any]:
    """Return the cases; all but the first, or but those that `stays` names, are marked `every`.

    A case of several parameters is a tuple.
    """
    cases = list(values)
    kept = tuple(stays) or cases[:1]
    return [case if case in kept else _marked(case, pytest.mark.every) for case in cases]


def long(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Return the cases; those after the first ``quick`` ones are marked `slow` (`make soak`)."""
    return [
        case if at < quick else _marked(case, pytest.mark.slow) for at, case in enumerate(values)
    ]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    parameters = case if isinstance(case, tuple) else (case,)
    return pytest.param(*parameters, marks=mark)
