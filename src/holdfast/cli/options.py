"""Options that several commands share, each with one name, one help and one meaning."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args, get_origin

from holdfast.cli.declared import Argument, Option
from holdfast.cli.output import Format
from holdfast.fleet.tables.storage.places import place_of

if TYPE_CHECKING:
    from holdfast.fleet.tables.storage.places import Place
else:  # an option has one type; ``place_of`` makes the value
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


PrintFormat = Annotated[Format, Option("--format", help="How to print it.")]
PrintOrParquet = Annotated[ReplayFormat, Option("--format", help="How to print it.")]
OutputFile = Annotated[
    Path | None, Option("--output", "-o", help="Where the result goes: a file, or stdout.")
]
_FOLDER = Option(
    "--output",
    "-o",
    parser=place_of,
    metavar="PATH",
    help="Where the result goes: a folder for tables, or a store.",
)
TablesFolder = Annotated[Place | None, _FOLDER]
WatchedFolder = Annotated[Place, _FOLDER]
FolderOfTables = Annotated[
    Place, Argument(parser=place_of, metavar="PATH", help="Folder of the tables.")
]
KeptTables = Annotated[
    Place | None,
    Option(
        "--input",
        parser=place_of,
        metavar="PATH",
        help="What to read: a folder of tables, as it changes.",
    ),
]
KEEP = "90d"
Keep = Annotated[str, Option("--keep", help="Drop rows that are older (90d, 12h); all: keep them.")]
Overwrite = Annotated[
    bool,
    Option("--overwrite", help="Replace what `holdfast watch` has kept in the -o folder."),
]
OffsetReset = Annotated[
    Reset,
    Option("--auto-offset-reset", help="What a partition without a commit lags behind."),
]
Bootstrap = Annotated[
    str | None,
    Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="A live cluster."),
]
NeededBootstrap = Annotated[
    str, Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="The cluster.")
]
DumpFolder = Annotated[
    Place,
    Option(
        "--output", "-o", parser=place_of, metavar="PATH", help="Where the result goes: a folder."
    ),
]
FleetInput = Annotated[
    Place | None,
    Option(
        "--input",
        parser=place_of,
        metavar="PATH",
        help="What to read: tables (holdfast history -o) or a dump (holdfast dump).",
    ),
]
Groups = Annotated[list[str] | None, Option("--group", help="A group or a pattern; repeatable.")]
SparkGroups = Annotated[
    bool,
    Option("--all-groups", help="Leave no group out: not those of Spark's own connector."),
]
BrokerLogs = Annotated[
    list[Path] | None,
    Option(
        "--broker-log",
        help="A broker's server.log (.gz too), oldest first; repeatable: states causes.",
    ),
]
CommandConfig = Annotated[
    Path | None, Option("--command-config", help="Kafka client properties (security, ...).")
]
Since = Annotated[
    str | None,
    Option(
        "--since", metavar="WHEN", help="What happened since: 2h (ago), or 2026-11-22T10:00 (UTC)."
    ),
]
Until = Annotated[
    str | None,
    Option("--until", metavar="WHEN", help="What happened until then; as --since."),
]
Timeout = Annotated[
    str,
    Option("--timeout", metavar="DURATION", help="Wait so long for an answer of the cluster."),
]
TIMEOUT = "30s"
Quiet = Annotated[bool, Option("--quiet", "-q", help="No notes on stderr.")]


def shared_options() -> list[str]:
    """The options of this module, without dashes in front: a settings file may set them for all."""
    declared = [get_args(kind)[1] for kind in globals().values() if get_origin(kind) is Annotated]
    return sorted(
        {
            next(flag for flag in one.flags if flag.startswith("--")).removeprefix("--")
            for one in declared
            if isinstance(one, Option)
        }
    )
