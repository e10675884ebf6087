"""Names for the Arrow values that the pipeline's functions exchange.

**Rules.** Arrow's own types are not checked (``pyproject.toml`` says why), so these names are for
readers. Spark's types are checked; a module imports them where it needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import pyarrow as pa

ArrowColumn: TypeAlias = pa.Array | pa.ChunkedArray
"""An array, or a column of a table."""

Arrays: TypeAlias = dict[str, ArrowColumn]
"""Columns by name, all of one length."""

Batches: TypeAlias = Iterable[pa.RecordBatch]

BatchTask: TypeAlias = Callable[[Batches], Batches]
"""What ``DataFrame.mapInArrow`` takes: record batches in, record batches out."""
