"""Options that several commands share, each with one name, one help and one meaning."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.output import Format
from holdfast.tables.places import place_of

if TYPE_CHECKING:
    from holdfast.tables.places import Place
else:  # Typer takes no union of types; ``place_of`` makes the value
    Place = object


class ReplayFormat(StrEnum):
    """``--format`` of ``replay``; Parquet needs a file."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class ExplainFormat(StrEnum):
    """``--format`` of ``explain``; markdown is the page of the documentation."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"


class JsonFormat(StrEnum):
    """``--format`` of ``decode``: one line each, or an indented document."""

    JSONL = "jsonl"
    JSON = "json"


class Reset(StrEnum):
    """Kafka's ``auto.offset.reset``."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"


PrintFormat = Annotated[Format, typer.Option("--format", help="How to print it.")]
PrintOrParquet = Annotated[ReplayFormat, typer.Option("--format", help="How to print it.")]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="A file; stdout by default.")
]
TablesFolder = Annotated[
    Place | None,
    typer.Option(
        "--output",
        "-o",
        parser=place_of,
        metavar="PATH",
        help="Keep the tables in this folder, or on a store.",
    ),
]
WatchedFolder = Annotated[
    Place,
    typer.Option(
        "--output", "-o", parser=place_of, metavar="PATH", help="Folder of the tables, or a store."
    ),
]
FolderOfTables = Annotated[
    Place, typer.Argument(parser=place_of, metavar="PATH", help="Folder of the tables.")
]
KeptTables = Annotated[
    Place | None,
    typer.Option(
        "--input", parser=place_of, metavar="PATH", help="Folder of tables, read as it changes."
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace what `holdfast watch` has kept in the -o folder."),
]
OffsetReset = Annotated[
    Reset,
    typer.Option("--auto-offset-reset", help="What a partition without a commit lags behind."),
]
Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="A live cluster."),
]
NeededBootstrap = Annotated[
    str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="The cluster.")
]
DumpFolder = Annotated[
    Place,
    typer.Option("--output", "-o", parser=place_of, metavar="PATH", help="Folder to write."),
]
FleetInput = Annotated[
    Place | None,
    typer.Option(
        "--input",
        parser=place_of,
        metavar="PATH",
        help="Tables (holdfast history -o) or a dump (holdfast dump).",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="BATCH|TIME",
        help="Tables as they were: a batch's number, or a time (ISO 8601, UTC).",
    ),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", help="A group or a pattern; repeatable.")
]
SparkGroups = Annotated[
    bool, typer.Option("--all-groups", help="Groups of Spark's own connector too.")
]
BrokerLogs = Annotated[
    list[Path] | None,
    typer.Option(
        "--broker-log",
        help="A broker's server.log (.gz too), oldest first; repeatable: states causes.",
    ),
]
CommandConfig = Annotated[
    Path | None, typer.Option("--command-config", help="Kafka client properties (security, ...).")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")]
