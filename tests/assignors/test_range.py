"""``range`` and ``roundrobin`` by hand; :mod:`tests.assignors.test_java_assignors` has the rest."""

from __future__ import annotations

from typing import Any

from tests.assignors.groups import run, snapshot, tp


def with_racks(group: dict[str, Any], racks: dict[str, str], **topics: str) -> dict[str, Any]:
    members = [dict(member, rack=racks.get(member["id"])) for member in group["members"]]
    rows = {name: [list(each) for each in text.split()] for name, text in topics.items()}
    return dict(group, members=members, racks=rows)


def test_the_first_members_hold_one_more() -> None:
    rows = run(snapshot({"t0": 5, "t1": 2}, ["C0", "C1", "C2"]), "range").to_dict()
    assert rows == tp("C0: t0p0 t0p1 t1p0; C1: t0p2 t0p3 t1p1; C2: t0p4")


def test_static_members_come_first_by_instance_id() -> None:
    group = snapshot({"t0": 2}, ["C0", "C1", "C2"])
    for member, instance_id in zip(group["members"], (None, "z", "a"), strict=True):
        member["instance_id"] = instance_id
    assert run(group, "range").to_dict() == tp("C0:; C1: t0p1; C2: t0p0")
    assert run(group, "roundrobin").to_dict() == tp("C0:; C1: t0p1; C2: t0p0")


def test_racks_decide_inside_the_counts() -> None:
    group = with_racks(snapshot({"t0": 2}, ["C0", "C1"]), {"C0": "b", "C1": "a"}, t0="a b")
    result = run(group, "range")
    assert result.to_dict() == tp("C0: t0p1; C1: t0p0")
    assert result.quality.cross_rack == 0


def test_racks_that_tell_nothing_apart_change_nothing() -> None:
    group = with_racks(snapshot({"t0": 2}, ["C0", "C1"]), {"C0": "b", "C1": "a"}, t0="ab ab")
    assert run(group, "range").to_dict() == tp("C0: t0p0; C1: t0p1")
    strange = with_racks(snapshot({"t0": 2}, ["C0", "C1"]), {"C0": "x"}, t0="a b")
    assert run(strange, "range").to_dict() == tp("C0: t0p0; C1: t0p1")


def test_topics_alike_stay_co_partitioned() -> None:
    group = snapshot({"t0": 3, "t1": 3}, ["C0", "C1", "C2"])
    group = with_racks(group, {"C0": "c", "C1": "b", "C2": "a"}, t0="a b c", t1="a b c")
    rows = tp("C0: t0p2 t1p2; C1: t0p1 t1p1; C2: t0p0 t1p0")
    assert run(group, "range").to_dict() == rows


def test_co_partitioned_topics_match_only_where_all_racks_do() -> None:
    group = snapshot({"t0": 2, "t1": 2}, ["C0", "C1"])
    group = with_racks(group, {"C0": "a", "C1": "b"}, t0="a b", t1="b a")
    assert run(group, "range").to_dict() == tp("C0: t0p0 t1p0; C1: t0p1 t1p1")


def test_round_robin_goes_on_where_the_topic_before_ended() -> None:
    members = {"C0": ["t0", "t2"], "C1": ["t1"], "C2": ["t0", "t1", "t2"]}
    rows = run(snapshot({"t0": 3, "t1": 1, "t2": 1}, members), "roundrobin").to_dict()
    assert rows == tp("C0: t0p0 t0p2; C1: t1p0; C2: t0p1 t2p0")


def test_topics_without_subscribers_or_partitions_are_skipped() -> None:
    group = snapshot({"t0": 0, "t1": 2, "t2": 1}, {"C0": ["t0", "t2"]})
    for name in ("range", "roundrobin"):
        assert run(group, name).to_dict() == tp("C0: t2p0")
        assert run(snapshot({"t0": 1}, []), name).to_dict() == {}
