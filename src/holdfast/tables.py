"""The tables of a folder without Spark: :func:`open_tables` and what it returns.

``docs/tables.md`` has keys, joins and questions. In a session of Spark, see :mod:`holdfast.spark`.
"""

from __future__ import annotations

from holdfast.extras import needed

with needed("fleet"):
    from holdfast.fleet.tables.reading import Tables, open_tables

__all__ = ["Tables", "open_tables"]
