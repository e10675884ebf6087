"""Options of the designs that ``simulate`` and ``replay`` share."""

from __future__ import annotations

from typing import Annotated

from holdfast.cli.declared import Option
from holdfast.cli.durations import format_duration
from holdfast.core.machine.policy import DEFAULTS

DELAY, INTERVAL = format_duration(DEFAULTS.delay_ms), format_duration(DEFAULTS.interval_ms)
STABILIZATION = format_duration(DEFAULTS.stabilization_ms)

Batch = Annotated[
    int, Option("--batch", help="Design III: moves per round for each gaining member.")
]
Interval = Annotated[
    str, Option("--interval", metavar="DURATION", help="Design III: time between batches.")
]
