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
    Path | None, typer.Option("--output", "-o", help="Where the result goes: a file, or stdout.")
]
_FOLDER = typer.Option(
    "--output",
    "-o",
    parser=place_of,
    metavar="PATH",
    help="Where the result goes: a folder for tables, or a store.",
)
TablesFolder = Annotated[Place | None, _FOLDER]
WatchedFolder = Annotated[Place, _FOLDER]
FolderOfTables = Annotated[
    Place, typer.Argument(parser=place_of, metavar="PATH", help="Folder of the tables.")
]
KeptTables = Annotated[
    Place | None,
    typer.Option(
        "--input",
        parser=place_of,
        metavar="PATH",
        help="What to read: a folder of tables, as it changes.",
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
    typer.Option(
        "--output", "-o", parser=place_of, metavar="PATH", help="Where the result goes: a folder."
    ),
]
FleetInput = Annotated[
    Place | None,
    typer.Option(
        "--input",
        parser=place_of,
        metavar="PATH",
        help="What to read: tables (holdfast history -o) or a dump (holdfast dump).",
    ),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", help="A group or a pattern; repeatable.")
]
SparkGroups = Annotated[
    bool,
    typer.Option("--all-groups", help="Leave no group out: not those of Spark's own connector."),
]
BrokerLogs = Annotated[
    list[Path] | None,
    typer.Option(
        "--broker-log",
        help="A broker's server.log (.gz too), oldest first; repeatable: states causes.",
    ),
]
Journals = Annotated[
    list[Path] | None,
    typer.Option(
        "--journal",
        help="Journals of members, a file or a folder of *.jsonl; repeatable: corrects pauses.",
    ),
]
CommandConfig = Annotated[
    Path | None, typer.Option("--command-config", help="Kafka client properties (security, ...).")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="What happened since: 2h (ago), or 2026-11-22T10:00 (UTC)."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="What happened until then; as --since."),
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", metavar="DURATION", help="Wait so long for an answer of the cluster."
    ),
]
TIMEOUT = "30s"
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")]
