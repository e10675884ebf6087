"""A folder of tables as the source of a command: read as it is, without Spark.

**Rules.** What was settled when the tables were made cannot be asked for again: causes from the log
of a broker, and the lag of a partition without a commit. Such an option is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.places import Place


def tell_age(tables: Tables, note: Callable[[str], None]) -> None:
    """Say how old the lags of tables are that ``watch`` should keep and does not."""
    from holdfast.fleet.report.findings.facts import read_age
    from holdfast.fleet.report.findings.finding import Limits

    age = read_age(tables, time.time_ns() // 1_000_000)
    if Limits().are_stale(age):
        note(
            f"log ends were read {age.seconds / 60:,.0f} minutes ago, and lags are as of then: "
            "does `watch` still run?"
        )


def is_dump(source: Place) -> bool:
    """Whether a folder is a finished dump."""
    return (source / "dump.json").is_file()


def refuse_logs(source: Place, broker_logs: Sequence[Path]) -> None:
    """Refuse logs of brokers beside tables, whose causes are settled.

    Raises
    ------
    ConfigError
    """
    if broker_logs:
        logs = [word for log in broker_logs for word in ("--broker-log", str(log))]
        line = holdfast_line("history", "-b", SERVERS, *logs, "-o", FOLDER)
        raise ConfigError(
            f"{source} holds tables, whose causes are settled: make others (`{line}`)"
        )
