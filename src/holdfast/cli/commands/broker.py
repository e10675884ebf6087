"""``holdfast broker``: a real Kafka to play with, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated

from holdfast.cli.declared import Option
from holdfast.cli.options import Quiet
from holdfast.cli.output import notes, stderr_console
from holdfast.errors import ConfigError

EXAMPLES = """\b
Examples:
  holdfast broker --port 9092
  holdfast broker --brokers 3 --keep
  holdfast broker --kafka 3.6.2
  holdfast broker --property group.initial.rebalance.delay.ms=3000
"""


def run(  # noqa: PLR0917 - every option is passed by name
    brokers: Annotated[int, Option("--brokers", help="Number of nodes: 1 or 3.")] = 1,
    kafka: Annotated[
        str | None,
        Option(
            "--kafka", metavar="VERSION", help="Version of Kafka, 2.5.0 or newer; default 4.3.1."
        ),
    ] = None,
    port: Annotated[
        int | None,
        Option("--port", help="Port of the first node; default: a free port."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        Option("--property", metavar="KEY=VALUE", help="Broker setting; repeatable."),
    ] = None,
    keep: Annotated[bool, Option("--keep", help="Keep the data folder after the end.")] = False,
    quiet: Quiet = False,
) -> None:
    """Start a real Apache Kafka on this machine and keep it until Ctrl-C.

    Prints the bootstrap address on stdout. Data are in a temporary folder, which is deleted at the
    end. The log of each node says why groups rebalance; other commands read it as --broker-log.
    """
    from holdfast.local.broker import Broker, BrokerSettings
    from holdfast.local.jars import KAFKA_VERSION

    note = notes(quiet)
    settings = BrokerSettings(
        brokers=brokers,
        kafka=kafka or KAFKA_VERSION,
        port=port,
        properties=dict(_split(item) for item in properties or ()),
        keep=keep,
    )
    # SIGTERM ends like Ctrl-C, so that the folder is deleted before this process ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        with nullcontext() if quiet else stderr_console().status("starting Kafka ..."):
            running = stack.enter_context(Broker.start(settings=settings, note=note))
        note(f"Kafka is ready after {running.start_seconds:.1f} s; Ctrl-C stops it")
        for log in running.logs:
            note(f"log, for --broker-log: {log}")
        if keep:
            note(f"data folder: {Path(running.folder)}")
        sys.stdout.write(running.bootstrap + "\n")
        sys.stdout.flush()
        running.wait()


def _split(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise ConfigError(f"--property: found {item!r}, expected KEY=VALUE")
    return key, value
