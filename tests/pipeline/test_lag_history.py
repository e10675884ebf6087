"""Lag over time: a row a group, topic and reading; few of old readings; no file is rewritten."""

from __future__ import annotations

import pytest
from tests.pipeline.topic_in_memory import OffsetsLog
from tests.tables.test_maintenance import delta

from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.tables.columns.schemas import moment_text
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.maintenance import KEPT_S, expired, merge, resolution_s
from holdfast.fleet.tables.reading import Tables

S_US, MINUTE_S, HOUR_S, DAY_S = 1_000_000, 60, 3_600, 86_400
BEGIN_US = 1_700_000_123_000_000


def kept_readings(every_s: int, n: int) -> dict[int, int]:
    """Moments, in microseconds, and resolutions that are left of ``n`` readings."""
    kept: dict[int, DataFile] = {}
    for i in range(n):
        now_us = BEGIN_US + i * every_s * S_US
        resolution = resolution_s(now_us, max(kept, default=None))
        said = {"timestamp": moment_text(now_us), "resolution_seconds": resolution}
        kept[now_us] = DataFile(name=str(now_us), rows=1, size=1, written_ms=0, highest=said)
        for name in expired([*kept.values()], now_us):
            del kept[int(name)]
    return {at: file.highest["resolution_seconds"] for at, file in kept.items()}


@pytest.mark.parametrize(("every_s", "days"), [(300, 3), (3_000, 30), (11, 0.1)])
def test_each_range_of_a_page_has_the_first_reading_of_each_of_its_periods(every_s, days):
    n = round(days * DAY_S / every_s)
    kept, last_us = kept_readings(every_s, n), BEGIN_US + (n - 1) * every_s * S_US
    every = [BEGIN_US + i * every_s * S_US for i in range(n)]
    for step_s, range_s in (
        (0, HOUR_S),
        (MINUTE_S, 6 * HOUR_S),
        (5 * MINUTE_S, DAY_S),
        (HOUR_S, 7 * DAY_S),
        (6 * HOUR_S, 90 * DAY_S),
    ):
        inside = [at for at in every if at > last_us - range_s * S_US]
        before = [None, *every][len(every) - len(inside)]
        wanted = [
            at
            for past, at in zip([before, *inside], inside, strict=False)
            if not step_s or past is None or past // (step_s * S_US) != at // (step_s * S_US)
        ]
        assert [at for at in kept if at in {*inside} and kept[at] >= step_s] == wanted
    most = sum((kept_s or 0) // max(step, every_s) for step, kept_s in KEPT_S.items())
    assert len(kept) <= most + days * 4 + 10


class EnoughError(Exception):
    """As many polls as the test wants."""


def watched(folder, polls):
    """Follow a log whose poll ``i`` is at ``polls[i][0]`` seconds, after these commits."""
    log, left = OffsetsLog(), list(polls)

    def snapshot():
        found = log.snapshot()
        found.taken_at = moment_text(BEGIN_US + at_s * S_US)
        return found

    def wait(_):
        nonlocal at_s
        if not left:
            raise EnoughError
        at_s, commits = left.pop(0)
        for one in commits:
            log.commit(*one)

    at_s = 0
    wait(0)
    tables = Tables(folder)
    into = Stream(
        tables=tables,
        snapshot=snapshot,
        selection=Selection(all_groups=True),
        every_seconds=1.0,
        max_records=1,
    )
    with pytest.raises(EnoughError):
        follow(log.feed(), into, wait=wait)
    return tables


def readings(tables):
    """Seconds since the first poll, group, topic, lag, partitions, and resolution of each row."""
    return [
        (
            round(row["timestamp"].timestamp()) - BEGIN_US // S_US,
            *(row[name] for name in ("group", "topic", "lag", "n_partitions", "n_unknown")),
            row["resolution_seconds"],
        )
        for row in tables.table("lag_history").to_pylist()
    ]


def test_a_batch_and_a_poll_without_records_add_a_row_a_group_and_topic(tmp_path):
    tables = watched(
        tmp_path,
        [
            # Two batches, for a batch takes one record: the first one leaves a record unread.
            (0, [("g", "t", 0, 100), ("g", "t", 1, 900), ("g", "unknown", 0, 5)]),
            (1, []),
            (2, [("h", "t", 0, 0), ("g", "t", 0, 1000)]),
        ],
    )
    assert tables.rows("offset_commits") == 5
    assert readings(tables) == [
        (0, "g", "t", 1000, 2, 0, 21_600),
        (1, "g", "t", 1000, 2, 0, 0),
        (2, "g", "t", 100, 2, 0, 0),
        (0, "g", "unknown", None, 1, 1, 21_600),
        (1, "g", "unknown", None, 1, 1, 0),
        (2, "g", "unknown", None, 1, 1, 0),
        (2, "h", "t", 1000, 1, 0, 0),
    ]
    assert delta(tables, "lag_history").to_pyarrow_table().num_rows == 7


def test_old_readings_go_as_whole_files_though_they_were_merged(tmp_path):
    """37 s after the first poll a minute begins; the polls merge files of one resolution."""
    polls = [(0, [("g", "t", 0, 100)]), *((at, []) for at in range(1, 45))]
    tables = watched(tmp_path, [*polls, (2 * HOUR_S, []), (2 * HOUR_S + 1, [])])
    assert [(at, resolution) for at, *_, resolution in readings(tables)] == [
        (0, 21_600),
        (37, 60),
        (2 * HOUR_S, 21_600),
        (2 * HOUR_S + 1, 0),
    ]
    removed = tables.folder.newest().known.snapshot("lag_history", tables.manifest()).removed
    assert any("/merged/" in name for name in removed)
    with tables.writing():
        merge(tables.folder, everything=True)
    assert len(tables.data_files("lag_history")) == 3
