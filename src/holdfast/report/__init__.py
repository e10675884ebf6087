"""Tables to one HTML file, to findings, to a trace: what people look at.

``write`` makes the report, ``read_tables`` reads what it is made from. Needs pyarrow, no Spark;
both are imported when used, so that importing this package costs nothing.

``reading`` reads tables, ``names`` is what strangers called things, ``views`` what several pages
show; ``metrics`` (Prometheus) and ``trace`` (Perfetto) are for other programs.

``findings/`` is the doctor, ``drawing/`` the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.report.drawing.writing import write
    from holdfast.report.reading import Tables, read_tables

__all__ = ["Tables", "read_tables", "write"]

_HOME = {"Tables": "reading", "read_tables": "reading", "write": "drawing.writing"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
