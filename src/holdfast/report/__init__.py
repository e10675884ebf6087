"""Tables to one HTML file, to findings, to a trace: what people look at.

``write`` makes the report, ``read_tables`` reads what it is made from. Needs pyarrow, no Spark;
both are imported when used, so that importing this package costs nothing.

Read by all: ``reading`` (tables), ``names`` (what strangers called things).

The doctor: ``findings`` (what a rule is, and the list of all), ``rules_rebalances``,
``rules_members``, ``rules_lag``, ``facts`` (what they look at), ``doctor`` (a fleet examined).

The page: ``identity`` and ``timeline`` (ownership), ``history`` (rebalances, moves), ``views``,
``sections``, ``lag_section``, ``policies`` and ``body`` (HTML), ``packing`` (columns for the page),
``page/`` (script and style), ``writing`` (the file), ``markup`` (escaping), ``palette``.

For others: ``metrics`` (Prometheus), ``trace`` (Perfetto).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.report.reading import Tables, read_tables
    from holdfast.report.writing import write

__all__ = ["Tables", "read_tables", "write"]

_HOME = {"Tables": "reading", "read_tables": "reading", "write": "writing"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
