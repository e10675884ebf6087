"""``holdfast demo``: the main job on a real broker, from start-up to ``report.html``."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table

from holdfast.cli.declared import Option
from holdfast.cli.options import Quiet, SummaryFormat
from holdfast.cli.output import write_json

if TYPE_CHECKING:
    from holdfast.cli.demo.run import DemoResult


EXAMPLES = """\b
Examples:
  holdfast demo
  holdfast demo --members 6 --partitions 24 -o bounce
  holdfast demo --keep -o bounce
  holdfast doctor --input bounce/tables
  holdfast demo --format json -q
"""


def run(  # noqa: PLR0917 - every option is passed by name
    members: Annotated[int, Option("--members", help="Members of each group.")] = 3,
    partitions: Annotated[int, Option("--partitions", help="Partitions of the topic.")] = 12,
    seconds: Annotated[
        float, Option("--seconds", help="Work before, between and after the bounces, in s.")
    ] = 1.5,
    rate: Annotated[float, Option("--rate", help="Records produced per second.")] = 600.0,
    out: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Output: a folder for report, tables and event logs; default: a new one.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        Option("--keep", help="Keep the broker (until Ctrl-C) and the tables."),
    ] = False,
    fmt: Annotated[SummaryFormat, Option("--format", help="Format of the summary.")] = (
        SummaryFormat.TABLE
    ),
    quiet: Quiet = False,
) -> None:
    """Bounce real members on a real Kafka under two policies and compare the costs.

    Starts a broker, produces to a topic throughout, restarts every member of two groups once, one
    group with the policy simple and one with deferred, turns the broker's offsets topic into tables
    with Spark and writes report.html. Each group reads every record.
    """
    from holdfast.cli.demo.run import DemoOptions, Stages
    from holdfast.cli.demo.run import run as run_demo

    began = time.monotonic()
    options = DemoOptions(
        members=members, partitions=partitions, seconds=seconds, rate=rate, out=out, keep=keep
    )
    shown = Stages(options.n_stages, quiet=quiet)
    interrupted = handle_interrupts()
    with run_demo(options, shown) as (result, broker):
        if fmt is SummaryFormat.JSON:
            write_json(_document(result, broker.bootstrap if keep else None, shown.seconds))
        else:
            _print_summary(result, time.monotonic() - began)
            if keep:
                Console(highlight=False).print(f"Broker: {broker.bootstrap}")
        if keep:
            sys.stdout.flush()
            shown.note("the broker runs until Ctrl-C")
            broker.wait(interrupted)
        if interrupted():
            raise KeyboardInterrupt


def handle_interrupts() -> Callable[[], bool]:
    """Make SIGTERM end the demo as Ctrl-C does; return a function that returns whether one came.

    Python drops a KeyboardInterrupt raised while it finalises an object, and Spark's objects may
    be finalised at any time. So code that waits for Ctrl-C must also call the function.
    """
    received = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.set()
        signal.default_int_handler(number, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    return received.is_set


def _document(
    result: DemoResult, bootstrap: str | None, stage_seconds: dict[str, float]
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "policies": {policy: _policy(result, policy) for policy in result.costs},
        "bounce_seconds": round(result.bounce_seconds, 3),
        "report": str(result.report),
        "folder": None if result.folder is None else str(result.folder),
        "bootstrap_server": bootstrap,
        "stage_seconds": {name: round(s, 2) for name, s in stage_seconds.items()},
    }


def _policy(result: DemoResult, policy: str) -> dict[str, Any]:
    """Return what the bounce cost under one policy."""
    cost = result.costs[policy]
    account = cost.account
    return {
        "moves": cost.n_moves,
        "unowned_seconds": [round(seconds, 3) for seconds in cost.unowned],
        "records": {
            "produced": account.produced,
            "consumed": account.read,
            "unread": account.unread,
            "read_twice": account.read_twice,
        },
    }


def _print_summary(result: DemoResult, total_seconds: float) -> None:
    console = Console(highlight=False)
    console.print(
        f"[bold]Cost of one rolling bounce under two policies[/bold], "
        f"in {result.bounce_seconds:.1f} s"
    )
    table = Table(header_style="bold")
    table.add_column("by the members' event logs")
    documents = [_policy(result, policy) for policy in result.costs]
    for policy in result.costs:
        table.add_column(policy, justify="right")
    for words, value_of in _ROWS:
        table.add_row(words, *map(value_of, documents))
    console.print(table)
    console.print(
        "deferred reserves the partitions of a member that restarts: nothing moves, and they have "
        "no owner until it is back. simple reassigns them at once, and others on its return."
    )
    console.print("No partition had two owners at once, in either group.")
    console.print(f"Report: {result.report} (after {total_seconds:.0f} s)", soft_wrap=True)
    if result.folder is not None:
        console.print(f"Tables and event logs: {result.folder}", soft_wrap=True)


_ROWS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("moves of a partition", lambda d: str(d["moves"])),
    ("downtime, partition-seconds", lambda d: f"{sum(d['unowned_seconds']):.1f}"),
    ("longest downtime of a partition, seconds", lambda d: f"{max(d['unowned_seconds']):.1f}"),
    ("records produced", lambda d: str(d["records"]["produced"])),
    ("  read", lambda d: str(d["records"]["consumed"])),
    ("  unread", lambda d: str(d["records"]["unread"])),
    ("  read twice", lambda d: str(d["records"]["read_twice"])),
)
"""Lines of the summary: words, and how the line is read off the JSON of a policy."""
