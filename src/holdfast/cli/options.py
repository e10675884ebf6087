"""Options that several commands share, each with one name, one help and one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="A live cluster."),
]
NeededBootstrap = Annotated[
    str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="The cluster.")
]
DumpInput = Annotated[
    Path | None, typer.Option("--input", help="A dump, as `holdfast dump` writes it.")
]
FleetInput = Annotated[
    Path | None,
    typer.Option("--input", help="Tables (holdfast history -o) or a dump (holdfast dump)."),
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
