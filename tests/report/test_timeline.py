"""Segments against a slow and obvious twin, then cases by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.fleet import START_MS, Script, deal, rolling_bounce, tables
from tests.report.unpacking import unpack
from tests.suites import dear

from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.analysis.group.timeline import Timeline
from holdfast.fleet.report.drawing.payload import group_payload
from holdfast.fleet.tables.reading import read_tables

TOPICS = {"a": 2, "b": 3}
TPS = [(t, p) for t in sorted(TOPICS) for p in range(TOPICS[t])]


@st.composite
def scripts(draw: Any) -> Script:
    script = Script("g", TOPICS)
    at = 0.0
    for _ in range(draw(st.integers(1, 7))):
        at += draw(st.sampled_from([0.0, 0.5, 2.0, 30.0]))
        members = draw(st.lists(st.sampled_from(["m-1", "m-2", "m-3"]), unique=True))
        owner = st.sampled_from([*members, None]) if members else st.none()
        owners = {tp: draw(owner) for tp in TPS}
        gap = draw(st.sampled_from([None, (0.0, 0.25), (0.1, 1.5), (0.1, 90.0)]))
        owned = {tp: m for tp, m in owners.items() if m is not None}
        script.settle(at, members, owned, gap=gap)
    return script


def slow_owner(script: Script, tp: tuple[str, int], ms: int) -> str | None:
    """Owner or "paused" at a moment: walk through the rows as a person would."""
    rows = script.rows["generations"]
    now = [r["generation"] for r in rows if r["timestamp"] <= ms]
    if not now:
        return None
    owner = None
    for row in script.rows.get("assignments", []):
        if row["generation"] == now[-1] and row["topic"] == tp[0] and tp[1] in row["partitions"]:
            owner = row["member_id"]
    begin = max(r["timestamp"] for r in rows if r["generation"] == now[-1])
    for row in script.rows.get("ownership_gaps", []):
        mine = row["topic"] == tp[0] and tp[1] in row["partitions"]
        # The pause takes its share of the piece in which the old owner was last seen.
        in_this_piece = begin <= row["last_seen"]
        if mine and owner and in_this_piece and row["last_seen"] <= ms < row["timestamp"]:
            return f"paused {owner}"
    return owner


def owner_at(timeline: Timeline, tp: tuple[str, int], ms: int) -> str | None:
    for row in range(len(timeline.row_partition)):
        name = timeline.topics[timeline.row_topic[row]], int(timeline.row_partition[row])
        if name != tp:
            continue
        for i in range(timeline.start[row], timeline.start[row + 1]):
            if timeline.from_ms[i] <= ms < timeline.to_ms[i]:
                code = timeline.owner[i]
                if timeline.in_gap[i]:
                    return f"paused {timeline.members[code]}"
                return timeline.members[code] if code >= 0 else None
    return None


@given(scripts())
def test_every_moment_has_the_owner_that_a_person_would_read_from_the_rows(script: Script) -> None:
    timeline = read_group(read_tables(tables(script)), "g", START_MS + 300_000).timeline
    moments = {r["timestamp"] for rows in script.rows.values() for r in rows}
    moments |= {r["last_seen"] for r in script.rows.get("ownership_gaps", [])}
    for ms in sorted({m + d for m in moments for d in (-1, 0, 1)}):
        if timeline.first_ms <= ms < timeline.last_ms:
            for tp in TPS:
                assert owner_at(timeline, tp, ms) == slow_owner(script, tp, ms), (tp, ms)


@dear
@given(scripts())
def test_segments_of_a_row_touch_and_cover_the_window(script: Script) -> None:
    timeline = read_group(read_tables(tables(script)), "g", START_MS + 300_000).timeline
    for row in range(len(timeline.row_partition)):
        part = slice(timeline.start[row], timeline.start[row + 1])
        begin, end, owner = timeline.from_ms[part], timeline.to_ms[part], timeline.owner[part]
        assert begin[0] == timeline.first_ms
        assert end[-1] == timeline.last_ms
        assert (begin[1:] == end[:-1]).all()
        assert (end > begin).all()
        in_gap = timeline.in_gap[part]
        assert ((owner[1:] != owner[:-1]) | (in_gap[1:] != in_gap[:-1])).all()
        assert (owner[in_gap] >= 0).all()
    assert timeline.start[-1] == len(timeline.owner)


@dear
@given(scripts(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(script: Script, chance: Any) -> None:
    first = read_group(read_tables(tables(script)), "g", START_MS + 300_000).timeline
    shuffled = {name: chance.sample(rows, len(rows)) for name, rows in tables(script).items()}
    second = read_group(read_tables(shuffled), "g", START_MS + 300_000).timeline
    for name in ("start", "from_ms", "to_ms", "owner", "in_gap", "row_topic", "row_partition"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


def test_a_group_that_died_and_came_back_counts_from_one_again() -> None:
    script = Script("g", {"a": 1})
    script.settle(0, ["m-1"], {("a", 0): "m-1"}).settle(10, ["m-2"], {("a", 0): "m-2"})
    script.generation = 0
    script.settle(20, ["m-3"], {("a", 0): "m-3"})
    timeline = read_group(read_tables(tables(script)), "g", START_MS + 30_000).timeline
    assert [timeline.members[o] for o in timeline.owner] == ["m-1", "m-2", "m-3"]
    assert timeline.generations.era.tolist() == [0, 0, 1]


def test_a_restarted_process_keeps_its_identity_under_a_new_member_id() -> None:
    timeline = read_group(read_tables(tables(rolling_bounce())), "etl").timeline
    assert timeline.identities.names == ("worker-0", "worker-1", "worker-2", "worker-3")
    assert len(timeline.members) == 8


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"group_instance_id": "static-1"}, "static-1"),
        ({"client_id": "same"}, "same"),
    ],
)
def test_what_a_process_is_called(extra: dict[str, Any], expected: str) -> None:
    script = Script("g", {"a": 1}).settle(0, [("m-1", extra)], {("a", 0): "m-1"})
    timeline = read_group(read_tables(tables(script)), "g").timeline
    assert timeline.identities.names == (expected,)


def test_members_that_share_a_client_id_and_host_stand_for_themselves() -> None:
    both = [("m-1", {"client_id": "c"}), ("m-2", {"client_id": "c"})]
    script = Script("g", {"a": 2}).settle(0, both, deal({"a": 2}, ["m-1", "m-2"]))
    timeline = read_group(read_tables(tables(script)), "g").timeline
    assert timeline.identities.names == ("m-1", "m-2")


def test_a_group_without_generations_has_no_rows() -> None:
    script = Script("g", {"a": 1}).lag({("a", 0): 5})
    timeline = read_group(read_tables(tables(script)), "g").timeline
    assert not (timeline.owner >= 0).any()
    assert timeline.start.tolist() == [0]


@given(scripts())
def test_the_page_gets_the_same_segments(script: Script) -> None:
    tables_read = read_tables(tables(script))
    history = read_group(tables_read, "g", START_MS + 300_000)
    t, (c, _) = history.timeline, unpack(group_payload(history))
    segments, i = [], 0
    for row, count in enumerate(c["row_segments"]):
        at, begin = 0, 0
        for _ in range(count):
            at += c["seg_step"][i]
            end = c["edge"][at]
            for until, in_gap in ((end - c["seg_gap"][i], False), (end, True)):
                if until > begin:
                    segments.append((row, begin, until, c["seg_owner"][i] - 1, in_gap))
                begin = until
            i += 1
    row = np.repeat(np.arange(len(t.row_topic)), np.diff(t.start))
    columns = (row, t.from_ms - t.first_ms, t.to_ms - t.first_ms, t.owner, t.in_gap)
    assert segments == list(zip(*(column.tolist() for column in columns), strict=True))
