"""``holdfast report``: tables or a dump to one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.output import notes, track
from holdfast.cli.sources import open_source
from holdfast.errors import ConfigError
from holdfast.fleet.tables.storage.file_system import write_private

EXAMPLES = """\b
Examples:
  holdfast history -b localhost:9092 -o tables &&
    holdfast report --input tables
  holdfast report --input dump --group etl -o etl.html
"""


def run(
    *,
    source_options: options.SourceOptions,
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="Output: an HTML file.")
    ] = Path("report.html"),
    replay: Annotated[
        Path | None,
        Option("--replay", help="JSON of `holdfast replay`, adds a comparison of policies."),
    ] = None,
    broker_log: options.BrokerLogs = None,
    window: options.RecentWindow,
) -> None:
    """Write one HTML file that shows ownership over time and the cost of rebalances.

    The file is complete: it loads nothing from the network.
    """
    from holdfast.fleet.report.drawing.policies import read_policies
    from holdfast.fleet.report.drawing.writing import render

    if not output.parent.is_dir():
        raise ConfigError(f"{output}: its folder {output.parent} does not exist")
    policies = read_policies(replay) if replay is not None else []
    with open_source(
        source_options,
        window,
        for_findings=True,
        spark_groups=True,
        broker_logs=broker_log,
    ) as opened:
        groups, tables = opened.shown(source_options.group)
        page = render(
            tables,
            f"Consumer groups of {source_options.bootstrap or source_options.source}",
            groups,
            policies=policies,
            last_ms=opened.end_ms,
            since_ms=opened.since_ms(options.SINCE_OF_NOW if source_options.bootstrap else None),
            drawn_since_ms=opened.since_ms(None),
            live=opened.live,
            track=lambda names: track(names, len(names), "groups", quiet=source_options.quiet),
            given=opened.given,
        )
    write_private(output, page)
    size = output.stat().st_size
    notes(source_options.quiet)(f"wrote {output} ({size / 1000:,.0f} kB); open it in any browser")
