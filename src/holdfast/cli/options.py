"""Options that several commands share, each with one name, one help and one meaning."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, get_args, get_origin

from holdfast.cli.declared import Argument, Option
from holdfast.cli.output import Format
from holdfast.errors import ConfigError
from holdfast.fleet.tables.storage.paths import storage_path

if TYPE_CHECKING:
    from holdfast.fleet.tables.storage.paths import StoragePath
else:  # an option has one type; ``storage_path`` makes the value
    StoragePath = object


class JsonFormat(StrEnum):
    """``--format`` of ``decode``: one line each, or an indented document."""

    JSONL = "jsonl"
    JSON = "json"


class SummaryFormat(StrEnum):
    """``--format`` of ``demo``: for people, or a document."""

    TABLE = "table"
    JSON = "json"


class Reset(StrEnum):
    """Kafka's ``auto.offset.reset``."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"


class Engine(StrEnum):
    """``--engine``: what reads the offsets topic of a live cluster, and runs the steps."""

    AUTO = "auto"
    PYTHON = "python"
    SPARK = "spark"
    COORDINATORS = "coordinators"


class Columns(StrEnum):
    """``--columns``."""

    MAIN = "main"
    ALL = "all"

    @property
    def are_all(self) -> bool:
        """Return whether a table has every column."""
        return self is Columns.ALL


ColumnsOfTable = Annotated[
    Columns,
    Option("--columns", help="Columns of a table in a file or a pipe: the main ten, or all."),
]
PrintFormat = Annotated[Format, Option("--format", help="Output format.")]
OutputFile = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE", help="Output: a file; default: stdout."),
]


def folder_of(text: str) -> StoragePath:
    """Return the folder or URL of ``-o``; raise ConfigError if the name is that of a file."""
    if (ending := PurePath(text).suffix.lower()) in _FILES and not Path(text).is_dir():
        raise ConfigError(
            f"-o {text}: expected a folder for tables; `> {text}` writes {ending[1:]} to a file"
        )
    return storage_path(text)


_FILES = frozenset({".csv", ".html", ".json", ".jsonl", ".parquet"})
_FOLDER = Option(
    "--output",
    "-o",
    parser=folder_of,
    metavar="FOLDER",
    help="Output: a folder or URL for the tables.",
)
TablesFolder = Annotated[StoragePath | None, _FOLDER]
WatchedFolder = Annotated[StoragePath, _FOLDER]
FolderOfTables = Annotated[
    StoragePath, Argument(parser=storage_path, metavar="PATH", help="Folder of the tables.")
]
Dumps = Annotated[
    list[StoragePath], Argument(parser=storage_path, metavar="DUMP...", help="Dumps to merge.")
]
WatchedTables = Annotated[
    StoragePath | None,
    Option(
        "--input",
        parser=storage_path,
        metavar="PATH",
        help="Source: a folder of tables to follow.",
    ),
]
KEEP = "90d"
Keep = Annotated[
    str,
    Option(
        "--keep",
        metavar="AGE",
        help="Age from which rows are dropped (90d, 12h), or all: keep every row.",
    ),
]
Overwrite = Annotated[
    bool,
    Option("--overwrite", help="Replace tables that `holdfast watch` wrote to the -o folder."),
]
OffsetReset = Annotated[
    Reset,
    Option("--auto-offset-reset", help="Offset from which lag is counted without a commit."),
]


def servers_of(text: str) -> str:
    """Return ``HOST:PORT,...``, by default with Kafka's port; raise ConfigError if it is wrong."""
    return ",".join(_server_of(one.strip()) for one in text.split(","))


def _server_of(text: str) -> str:
    has_port = text.count(":") == 1 or "]:" in text
    port = text.rpartition(":")[2] if has_port else "9092"
    if not port.isdecimal():
        raise ConfigError(
            f"{text!r}: the port is not a number; expected an address such as localhost:9092"
        )
    if not 0 < int(port) < 65_536:
        raise ConfigError(f"{text!r}: expected a port from 1 to 65535")
    return text if has_port else f"{text}:{port}"


_SERVERS = Option(
    "--bootstrap-server",
    "-b",
    parser=servers_of,
    metavar="HOST:PORT",
    help="Bootstrap servers of a live cluster.",
)
Bootstrap = Annotated[str | None, _SERVERS]
NeededBootstrap = Annotated[str, _SERVERS]
DumpFolder = Annotated[
    StoragePath,
    Option(
        "--output",
        "-o",
        parser=folder_of,
        metavar="FOLDER",
        help="Output: a folder or URL for the dump.",
    ),
]
FleetInput = Annotated[
    StoragePath | None,
    Option(
        "--input",
        parser=storage_path,
        metavar="PATH",
        help="Source: tables, a dump, or a file with the output of Kafka's tools.",
    ),
]
Groups = Annotated[
    list[str] | None,
    Option("--group", metavar="GROUP", help="Name or pattern of groups; repeatable; default: all."),
]
SparkGroups = Annotated[
    bool,
    Option("--all-groups", help="Include groups of Spark's connector."),
]
BrokerLogs = Annotated[
    list[Path] | None,
    Option(
        "--broker-log",
        help="A broker's server.log, plain or from a collector (JSON, CSV, gzip); repeatable.",
    ),
]
CommandConfig = Annotated[
    Path | None, Option("--command-config", help="File of Kafka client properties (security, ...).")
]
_MOMENTS = "2h (before the source was read), or 2026-11-22T10:00 (UTC)"
Since = Annotated[
    str | None,
    Option("--since", metavar="WHEN", help=f"Begin of the window: {_MOMENTS}; default: all."),
]
SINCE_OF_NOW = "1h"
"""Default begin of the window for commands that examine a live cluster."""
RecentSince = Annotated[
    str | None,
    Option(
        "--since",
        metavar="WHEN",
        help=f"Begin of the window: {_MOMENTS}; default: {SINCE_OF_NOW} of a live cluster, else "
        "all.",
    ),
]
Until = Annotated[
    str | None,
    Option(
        "--until",
        metavar="WHEN",
        help="End of the window, like --since; default: the end of the source.",
    ),
]
Timeout = Annotated[
    str,
    Option("--timeout", metavar="DURATION", help="Request timeout."),
]
TIMEOUT = "30s"
EngineOption = Annotated[
    Engine,
    Option(
        "--engine",
        help="Reader: this Python process, Spark, or by size (above 1,000,000 records Spark); or "
        "coordinators: polls of groups, where the offsets topic cannot be read.",
    ),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print no notes on stderr.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a command reads, and of which groups."""

    source: FleetInput = None
    bootstrap: Bootstrap = None
    command_config: CommandConfig = None
    group: Groups = None
    timeout: Timeout = TIMEOUT
    engine: EngineOption = Engine.AUTO
    quiet: Quiet = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which part of a history in time."""

    since: Since = None
    until: Until = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentWindow:
    """The window of a command that examines the present."""

    since: RecentSince = None
    until: Until = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What `watch` and `serve` keep of a cluster, and for how long."""

    group: Groups = None
    all_groups: SparkGroups = False
    keep: Keep = KEEP
    reset: OffsetReset = Reset.LATEST
    broker_log: BrokerLogs = None
    command_config: CommandConfig = None
    timeout: Timeout = TIMEOUT
    engine: EngineOption = Engine.AUTO


def shared_options() -> list[str]:
    """Return this module's options, without dashes: a settings file may set them for all."""
    declared = [get_args(kind)[1] for kind in globals().values() if get_origin(kind) is Annotated]
    return sorted(
        {
            next(flag for flag in one.flags if flag.startswith("--")).removeprefix("--")
            for one in declared
            if isinstance(one, Option)
        }
    )
