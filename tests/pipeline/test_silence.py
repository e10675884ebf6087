"""Members that went: how long they had been silent, where that stands out from the others."""

from __future__ import annotations

import pytest
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation
from tests.report.fleet import examine_all

from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import read_tables

LEFT_S = 1_000
LAST_S = 680


def examined(folder, *, others_until=LEFT_S, read_on=True, stream=False):
    """The silence of a member that goes, and codes; of four members each has a partition."""
    members = {f"m{p}": {"t": [p]} for p in range(4)}
    rest = {f"m{p}": {"t": [p, 0] if p == 1 else [p]} for p in range(1, 4)}
    history = [generation("g", 1, members, at=100), generation("g", 2, rest, at=LEFT_S)]
    records = fleet.classics(history)
    ends = {0: LAST_S, **dict.fromkeys((1, 2, 3), others_until)}
    made = [(p, at) for p, end in ends.items() for at in range(110, end, 30)]
    made += [(0, at) for at in range(LEFT_S + 20, LEFT_S + 80, 30) if read_on]
    records += [("g", at, fleet.commit("g", "t", p, at, at=at)) for p, at in made]
    records.sort(key=lambda record: record[1])
    newest = {p: max(at for q, at in made if q == p) for p in range(4)}
    offsets = [("t", p, 0, newest[p]) for p in range(4)]
    taken = "1970-01-01T00:18:20+00:00"
    dump = fleet.write_dump(folder / "dump", records, offsets=offsets, taken_at=taken)
    out = folder / "tables"
    tables = local.stream(dump, out, [900_000_000]) if stream else local.run(dump, out)
    silent = [r["silent_seconds"] for r in tables.table("rebalances").to_pylist()]
    held = read_tables({name: tables.table(name, flat=False) for name in TABLES})
    (found,) = examine_all(held, last_ms=1_100_000)
    return silent[-1], [f for f in found.findings if f.code == "HF105"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stuck_member_is_found_after_it_was_thrown_out(tmp_path, stream):
    silent, (finding,) = examined(tmp_path, stream=stream)
    assert silent == LEFT_S - max(range(110, LAST_S, 30))
    assert finding.evidence.members.shown == ("m0",)
    assert finding.evidence.partitions.shown == ("t-0",)
    assert finding.cost_upper_s == silent


def test_a_group_that_commits_rarely_has_no_silent_member(tmp_path):
    silent, findings = examined(tmp_path, others_until=LEFT_S - 150)
    assert silent is None and not findings


def test_a_member_without_work_was_not_stuck(tmp_path):
    silent, findings = examined(tmp_path, read_on=False)
    assert silent >= 240 and not findings
