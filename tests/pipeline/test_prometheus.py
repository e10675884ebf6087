"""Metrics as text: what they add up to, and names that try to break the format."""

from __future__ import annotations

from tests.pipeline import fleet, local
from tests.pipeline.histories import generation

from holdfast.pipeline.prometheus import exposition, write_exposition


def tables(tmp_path, group="g"):
    steps = [{"a-1": {"t": [0, 1]}}, {"a-1": {"t": [0]}, "b-1": {"t": [1]}}]
    history = [generation(group, n, m, at=10 * n) for n, m in enumerate(steps, start=1)]
    records = [(g["group"], g["timestamp"], fleet.classic(g)) for g in history]
    records += [(group, 15, fleet.commit(group, "t", 0, 3, at=15)), (group, 16, (b"\0", None))]
    fleet.write_dump(tmp_path / "dump", records, offsets=[("t", 0, 0, 10)])
    return local.run(tmp_path / "dump", tmp_path / "out")


def test_what_they_add_up_to(tmp_path):
    lines = exposition(tables(tmp_path)).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert 'holdfast_group_rebalances_total{group="g",cause="first_seen"} 1' in samples
    assert 'holdfast_group_rebalances_total{group="g",cause="join"} 1' in samples
    assert 'holdfast_group_moved_partitions_total{group="g"} 1' in samples
    assert "holdfast_bad_records_total 1" in samples
    assert 'kafka_consumergroup_lag{group="g",topic="t",partition="0"} 7' in samples
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {line.split("{")[0].split()[0] for line in samples} == names


def test_a_name_cannot_break_a_line(tmp_path):
    text = exposition(tables(tmp_path, 'a"} 1\nx \\'))
    assert '{group="a\\"} 1\\nx \\\\"' in text
    assert all(line.startswith(("#", "holdfast_", "kafka_")) for line in text.splitlines())


def test_the_file_is_replaced_whole(tmp_path):
    made = tables(tmp_path)
    target = tmp_path / "holdfast.prom"
    target.write_text("old")
    write_exposition(made, target)
    assert target.read_text() == exposition(made)
    assert [p.name for p in tmp_path.glob("*.prom*")] == ["holdfast.prom"]
