"""``holdfast plan``: what another assignment would be for every group. Prints, never applies."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from typing import Annotated

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.option_values import AssignorOptions, parse_assignor, parse_option
from holdfast.cli.output import Format, write_rows
from holdfast.cli.sources import open_source
from holdfast.cli.spark_progress import spark_bar

_MAIN = (
    *("group", "n_members", "n_partitions", "n_moved"),
    *("balance_score_before", "balance_score", "largest_lag_before", "largest_lag"),
    *("cost_upper_seconds", "refused"),
)
"""Columns that a table for people begins with."""

EXAMPLES = """\b
Examples:
  holdfast plan --assignor sticky -b localhost:9092 --group etl
  holdfast plan --assignor lag --input dump
  holdfast plan --assignor cooperative-sticky --input dump --format json
  holdfast plan --assignor policies:by_host --input dump
"""


def run(
    *,
    assignor: Annotated[
        str,
        Option(
            "--assignor",
            metavar="NAME",
            help="Assignor, as of `holdfast assign`.",
            usual="Usual is cooperative-sticky; lag-sticky also evens out lag.",
        ),
    ],
    source_options: options.SourceOptions,
    fmt: options.PrintFormat = Format.TABLE,
    columns: options.ColumnsOfTable = options.Columns.MAIN,
    option: AssignorOptions = None,
    output: options.OutputFile = None,
) -> None:
    """Plan a new assignment for every group that has members.

    Prints the moves, the gain and the cost.

    Changes nothing on the cluster. The cost is the downtime of the group so far, in
    partition-seconds. `moves` in JSON output lists (topic, partition, from, to).
    """
    from holdfast.core.assignors.registry import check_options
    from holdfast.fleet.pipeline.plan import PLAN, plan, topics_of
    from holdfast.fleet.pipeline.session import running_session

    assignor_options = dict(parse_option(text) for text in option or ())
    named = parse_assignor(assignor)
    check_options(named, assignor_options)
    with open_source(source_options, auto_offset_reset="earliest", takes_described=True) as opened:
        topics = opened.topics or topics_of(opened.tables)
        session = running_session()

        def n_groups() -> int:
            return len(opened.tables.stored("generations", groups=opened.groups)["group"].unique())

        bar = partial(
            spark_bar, what="plan", n_records=n_groups, unit="groups", quiet=source_options.quiet
        )
        with nullcontext() if session is None else bar(session()):
            rows = plan(
                session, opened.tables, topics, named, groups=opened.groups, **assignor_options
            ).to_pylist()
        names = list(PLAN.names)
        if fmt is Format.TABLE:
            names = [*_MAIN, *(n for n in names if n not in (*_MAIN, "moves"))]
        shown = [{name: row[name] for name in names} for row in rows]
        if fmt in (Format.JSON, Format.JSONL):
            shown = [{**row, "moves": json.loads(row["moves"] or "[]")} for row in shown]
        write_rows(shown, names, fmt, output, title="plan", every_column=columns.are_all)
