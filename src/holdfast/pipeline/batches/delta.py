"""The tables as Delta tables, for readers that want Delta: ``DIR/delta/<table>``.

**Rules.** The folder of Parquet files and its manifest is what counts; the Delta tables are a copy,
written afterwards. A batch of a stream is appended under its own number, in a transaction of the
query, so a batch that runs again adds nothing. ``lag`` and ``rebalances`` change as a whole (a late
pause may be added to a rebalance), so they are written over.

**Strategy.** Delta is two jars on the class path and no Python package. Spark reads the files that
the manifest names and writes them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.pipeline.batches.views import stored
from holdfast.tables.folder import DELTA_FOLDER
from holdfast.tables.reading import Tables
from holdfast.tables.stored import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE: Final = ("lag", "rebalances")


def write_delta(spark: SparkSession, tables: Tables) -> Path:
    """Write every table anew.

    Parameters
    ----------
    spark : SparkSession
        With Delta on its class path (``get_session(delta=True)``).

    Returns
    -------
    Path
        The folder with one Delta table per table.
    """
    target = tables.root / DELTA_FOLDER
    for name in TABLES:
        writer = stored(spark, name, tables.files(name)).write.mode("overwrite")
        writer.format("delta").save(str(target / name))
    return target


def append_delta(spark: SparkSession, tables: Tables, batch: int) -> Path:
    """Add one committed batch of a stream; a table that already has it stays as it is."""
    target = tables.root / DELTA_FOLDER
    (found,) = [one for one in tables.batches() if one.id == batch]
    options = {"txnAppId": str(found.notes["query"]), "txnVersion": str(batch)}
    for name in TABLES:
        whole = name in WHOLE
        own = [tables.root / file for file, _ in found.files.get(name, [])]
        frame = stored(spark, name, tables.files(name) if whole else own)
        writer = frame.write.mode("overwrite" if whole else "append").options(**options)
        writer.format("delta").save(str(target / name))
    return target
