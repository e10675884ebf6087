"""Histories for commands: made of a dump or a live cluster, or stored; and notes about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import options
from holdfast.cli.option_values import import_from_here, parse_duration_ms
from holdfast.cli.output import notes
from holdfast.cli.spark_progress import spark_bar, spark_when_needed
from holdfast.core.kinds import is_read
from holdfast.core.names import means, shown_name, visible
from holdfast.errors import ConfigError, SourceError, UnreadableTopicError, nearest, suggest

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.fleet.pipeline.batches.history import History
    from holdfast.fleet.pipeline.ingest.decode import Selection
    from holdfast.fleet.pipeline.ingest.polled_feed import Feed
    from holdfast.fleet.pipeline.ingest.source import Dump
    from holdfast.fleet.pipeline.ingest.transactions import OpenTransaction
    from holdfast.fleet.pipeline.steps import Session
    from holdfast.fleet.tables.folder.manifest import Batch
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath

OLD_TRANSACTION_S = 10
"""A transaction that is open for longer is reported: most end at once."""
NO_GROUP = "there is none, or this principal needs DESCRIBE on groups"
ROWS_AT_ONCE = 10_000
"""Rows of a table that are Python objects at one time."""


def report_unread(made: History, note: Any) -> None:
    """Report the records that no table shows."""
    report_notes(made.tables.batches()[-1], f"of {made.dump.n_records()}", note)
    report_open(made.dump.open_transactions, made.dump.taken_at, note)
    table = made.table("generations")
    named = zip(table["group"].to_pylist(), table["protocol_type"].to_pylist(), strict=True)
    others: dict[str, set[str]] = {}
    for group, protocol_type in named:
        if protocol_type and not is_read(protocol_type):
            others.setdefault(protocol_type, set()).add(group)
    for protocol_type, groups in sorted(others.items()):
        note(
            f"assignments of protocol type {visible(protocol_type)} are not read "
            f"({len(groups)} {'group' if len(groups) == 1 else 'groups'}, such as "
            f"{visible(min(groups))})"
        )


def report_notes(
    batch: Batch, among: str, note: Any, *, share: bool = True, logs: bool = True
) -> None:
    """Report how many records of a batch do not parse, or have an unknown type.

    ``among`` is the text before "records". With ``share`` and ``logs``, report records of
    ``__share_group_state``, and of broker logs, too.
    """
    n_bad = batch.rows.get("bad_records", 0)
    if n_bad:
        note(f"{n_bad} {among} records do not parse: `history --table bad_records` lists them")
    unknown = {int(number): n for number, n in batch.notes.get("unknown_types", {}).items()}
    if unknown:
        types = ", ".join(f"{n} of type {number}" for number, n in sorted(unknown.items()))
        note(f"{sum(unknown.values())} {among} records have an unknown type: {types}")
    n_bad_share = batch.notes.get("n_bad_share", 0)
    if n_bad_share and share:
        note(
            f"{n_bad_share} of the records of __share_group_state do not parse: the lag of their "
            "share groups may be old or unknown"
        )
    for text in batch.notes.get("broker_logs", ()) if logs else ():
        note(text)


def report_open(found: Iterable[OpenTransaction], taken_at: str, note: Any) -> None:
    """Report transactions that were open at a moment for more than :data:`OLD_TRANSACTION_S`."""
    from holdfast.fleet.tables.columns.schemas import to_us

    at_us = to_us(taken_at)
    for one in found:
        if at_us is None or one.since_us > at_us - OLD_TRANSACTION_S * 1_000_000:
            continue
        since = datetime.fromtimestamp(one.since_us / 1e6, UTC).isoformat(timespec="seconds")
        groups = ", ".join(map(shown_name, one.groups))
        many = one.n_records > 1
        what = (
            f"{one.n_records} records of {groups} count" if many else f"1 record of {groups} counts"
        )
        note(
            f"a transaction of producer {one.producer_id} is open in partition {one.partition} of "
            f"__consumer_offsets since {since.replace('+00:00', 'Z')}: {what} once it is committed"
        )


def report_source(tables: Tables, note: Any) -> None:
    """Report that tables come from polls, and transactions that were open at their last batch."""
    from holdfast.fleet.analysis.times import polls_text
    from holdfast.fleet.pipeline.ingest.transactions import from_notes

    kept = tables.newest_notes()
    if text := polls_text(kept):
        note(text)
    report_open(from_notes(kept.get("open_transactions", ())), str(kept.get("taken_at", "")), note)


def make_history(
    source_options: options.SourceOptions,
    out_dir: StoragePath,
    *,
    all_groups: bool,
    auto_offset_reset: str = "latest",
    broker_logs: Sequence[Path] = (),
    overwrite: bool = False,
    examines: bool = True,
    dump: Dump | None = None,
    before: Callable[[], object] | None = None,
) -> History:
    """Run the pipeline on what the command line named: one of ``bootstrap`` and ``source``.

    ``dump`` is what was made of a ``source`` that is a text.
    ``before`` is called once a cluster has answered, before its records are read.
    """
    from holdfast.fleet.analysis.times import NOT_KNOWN_BY_POLLS
    from holdfast.fleet.pipeline.batches.history import check_target
    from holdfast.fleet.pipeline.batches.history import run as rebuild
    from holdfast.fleet.pipeline.ingest.decode import Selection
    from holdfast.fleet.pipeline.ingest.source import Dump

    note, groups = notes(source_options.quiet), source_options.group or []
    check_target(out_dir, overwrite=overwrite)
    selection = Selection(groups=groups, all_groups=all_groups)

    def bar(n_records: int) -> Callable[[Any], AbstractContextManager[None]]:
        return partial(spark_bar, what="history", n_records=n_records, quiet=source_options.quiet)

    with ExitStack() as stack:
        if source_options.source is None:
            cluster = cluster_of(source_options)
            cluster.check()
            if before is not None:
                before()
            check_logs(broker_logs)
            where: Dump | Feed
            opened = open_feed(cluster, source_options.engine, selection, bar=bar, note=note)
            where = feed = stack.enter_context(opened)
            session, known = feed.session, cluster.group_names
        else:
            where = dump = dump or Dump.open(source_options.source)
            check_logs(broker_logs)
            dump.check_read()
            polled = f", a poll of coordinators: {NOT_KNOWN_BY_POLLS}" if dump.is_polled else ""
            note(f"reading {source_options.source}{polled}")
            shown = bar(dump.n_records())
            session = stack.enter_context(session_of(source_options.engine, shown, note=note))
            known = dump.group_names
        made = rebuild(
            session,
            where,
            out_dir,
            selection=selection,
            auto_offset_reset=auto_offset_reset,
            broker_logs=broker_logs,
            overwrite=overwrite,
            examines=examines,
            note=note,
        )
    check_groups(made, groups, note, known)
    report_unread(made, note)
    return made


def check_groups(
    made: Any, groups: Sequence[str], note: Any, known: Callable[[], Collection[str]] = tuple
) -> None:
    """Report names and patterns of ``--group`` without a match; SourceError if none has one.

    ``known`` returns the names of every group of the source; it is called if a match is missing.
    """
    if not groups:
        return
    there = {
        name
        for table in ("generations", "offset_commits", "lag")
        for name in made.table(table)["group"].unique().to_pylist()
    }
    missing = [one for one in groups if not any(means(one, name) for name in there)]
    every = {*there, *known()} if missing else there
    refuse_unknown(groups, every)
    from holdfast.fleet.tables.folder.manifest import REFUSED  # it loads Arrow

    refused = made.tables.newest_notes().get(REFUSED, {})
    for wanted in missing:
        if wanted in refused:
            note(f"group {wanted!r} could not be polled: {refused[wanted]}")
            continue
        is_known = any(means(wanted, name) for name in every)
        hint = " yet" if is_known else nearest(wanted, sorted(every), 3, before=": ")
        note(f"no record of a group {wanted!r}{hint}")


def refuse_unknown(groups: Sequence[str], known: Collection[str]) -> None:
    """Raise a SourceError if names and patterns of ``--group`` mean none of the known groups."""
    if groups and not any(means(wanted, name) for wanted in groups for name in known):
        hint = suggest(groups[0], sorted(known), 3) if known else NO_GROUP
        raise SourceError(f"no group {groups[0]!r} here; {hint}")


def live_cluster(bootstrap: str, command_config: Path | None, timeout: str) -> LiveCluster:
    """Return a cluster with the client properties of ``--command-config``; send no request yet.

    Raise ConfigError if the timeout is not a duration, SourceError if the file cannot be read.
    """
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.credentials import PROVIDER
    from holdfast.cluster.settings import read_properties

    config = read_properties(command_config) if command_config else {}
    if PROVIDER in config:
        import_from_here()
    wait_ms = parse_duration_ms(timeout, "--timeout")
    if wait_ms <= 0:
        raise ConfigError(f"--timeout: found {timeout!r}, expected a duration above 0")
    return LiveCluster(bootstrap=bootstrap, config=config, timeout_ms=wait_ms)


def cluster_of(source_options: options.SourceOptions) -> LiveCluster:
    """Return the cluster that a command line named."""
    return live_cluster(
        str(source_options.bootstrap), source_options.command_config, source_options.timeout
    )


def check_logs(logs: Sequence[Path]) -> None:
    """Raise a SourceError if a ``--broker-log`` is missing, before anything slow is started."""
    for log in logs:
        if not log.is_file():
            raise SourceError(f"{log}: no such file; --broker-log takes a broker's server.log")


@contextmanager
def open_feed(
    cluster: LiveCluster,
    engine: options.Engine,
    selection: Selection,
    *,
    bar: Callable[[int], Callable[[Any], AbstractContextManager[None]]],
    note: Callable[[str], None],
    tables: Tables | None = None,
) -> Iterator[Feed]:
    """Yield the records of a cluster for an engine, and report what reads them.

    Coordinators are polled instead of the offsets topic on request, where the tables were made by
    polls, and where a cluster has groups and no readable topic, or one that nothing is written to.

    Parameters
    ----------
    bar : callable
        Takes the number of records; returns what shows Spark's progress.
    tables : Tables, optional
        Tables of a stream, which the feed continues: only records that are new to them count.

    Raises
    ------
    SourceError
        The topic cannot be read and no group can be polled, or the tables are of another feed.
    """
    from holdfast.fleet.pipeline.batches.watch import count_new
    from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, KafkaFeed
    from holdfast.fleet.pipeline.ingest.polled_feed import feed_of
    from holdfast.fleet.pipeline.steps import HERE_ROWS

    def count() -> int:
        if tables is not None:
            return count_new(tables, cluster.partition_ends(OFFSETS_TOPIC))
        ends = cluster.partition_ends(OFFSETS_TOPIC, selection.log_partitions)
        return sum(one.end - one.begin for one in ends.values())

    if tables is not None and tables.is_polled:
        engine = options.Engine.COORDINATORS
    is_new = tables is None or not tables.committed()
    held = _count_readable(cluster, engine, count, note, is_new=is_new)
    if held is None:
        yield feed_of(cluster, selection, tables, note)
        return
    most_here = 0 if engine is options.Engine.SPARK else HERE_ROWS
    region = cluster.msk_region
    with session_of(engine, bar(held), note=note, kafka=True, msk_region=region) as session:
        feed = KafkaFeed(cluster=cluster, session=session, most_here=most_here)
        reader = "Spark" if feed.needs_spark(held) else "this process"
        note(f"reading {cluster.bootstrap}: up to {held:,} records, by {reader}")
        yield feed


def _count_readable(
    cluster: LiveCluster,
    engine: options.Engine,
    count: Callable[[], int],
    note: Callable[[str], None],
    *,
    is_new: bool,
) -> int | None:
    """Return the number of records to read; None if coordinators are to be polled instead.

    ``is_new``: no tables are continued; those with records of the topic continue with the topic.
    """
    from holdfast.cluster.groups_now import has_unrecorded_groups
    from holdfast.fleet.analysis.times import NOT_KNOWN_BY_POLLS
    from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC

    polled = f"coordinators are polled in place of the offsets topic: {NOT_KNOWN_BY_POLLS}"
    if engine is options.Engine.COORDINATORS:
        note(polled)
        return None
    try:
        held = count()
    except UnreadableTopicError as error:
        if engine is not options.Engine.AUTO or not cluster.group_names():
            raise
        why = str(error)
    else:
        may_poll = not held and is_new and engine is options.Engine.AUTO
        if not may_poll or not has_unrecorded_groups(cluster, OFFSETS_TOPIC):
            return held
        why = f"{OFFSETS_TOPIC} of {cluster.bootstrap} is empty, though groups are listed"
    note(why)
    note(polled)
    return None


@contextmanager
def session_of(
    engine: options.Engine, bar: Callable[[Any], AbstractContextManager[None]], **settings: Any
) -> Iterator[Session]:
    """Yield a function that starts Spark with a bar; None for the engine without Spark."""
    if engine is options.Engine.PYTHON:
        yield None
        return
    with spark_when_needed(bar, **settings) as session:
        yield session


def rows_within(rows: Any, window: tuple[int | None, int | None]) -> Any:
    """Return rows whose time lies in a window."""
    import pyarrow.compute as pc

    low, high = window
    if low is not None:
        rows = rows.filter(pc.greater_equal(rows["timestamp"].cast("int64"), low))
    if high is not None:
        rows = rows.filter(pc.less_equal(rows["timestamp"].cast("int64"), high))
    return rows


def rows_of(table: Any) -> Iterator[dict[str, Any]]:
    """Yield rows of an Arrow table for people and programs: times as ISO 8601 in UTC."""
    times = [f.name for f in table.schema if str(f.type).startswith("timestamp")]
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        for row in batch.to_pylist():
            for name in times:
                value = row[name]
                row[name] = None if value is None else value.isoformat().replace("+00:00", "Z")
            yield row
