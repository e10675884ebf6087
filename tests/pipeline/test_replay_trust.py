"""A replay that does not agree with its records says so, and names what would mend it."""

from __future__ import annotations

import json

import pytest
from tests.cli.running import run
from tests.pipeline import fleet, local, worlds
from tests.pipeline.histories import generation

from holdfast.model.fidelity import LOW_FIDELITY, SURE_FIDELITY
from holdfast.pipeline.replay import rows as replay_rows
from holdfast.pipeline.replay.mends import with_mends
from holdfast.pipeline.replay.rows import group_rows
from holdfast.pipeline.replay.run import SECONDS, Request, replay
from holdfast.pipeline.replay.story import story_of
from holdfast.pipeline.replay.trust import MEANINGS, caution
from holdfast.report.drawing.policies import policy_section
from holdfast.sim.world.costs import Costs

LIVED = Costs(
    heartbeat_ms=300,
    session_ms=6_000,
    poll_ms=60,
    revoke_ms=20,
    rebuild_ms=0,
    restart_ms=2_000,
    follow_up_ms=300,
    slow_members=0,
)


@pytest.fixture(scope="module")
def bounced(tmp_path_factory):
    """Tables of four eager members, bounced one after the other."""
    return tables_of("eager", tmp_path_factory.mktemp("bounced"))


def tables_of(policy, folder):
    setup = {"scenario": "rolling-bounce", "members": 4, "partitions": 12, "seed": 3}
    played = worlds.play("g", policy=policy, costs=LIVED, **setup)
    return local.run(worlds.write(folder / "dump", [played], topics=[("topic", 12)]), folder / "t")


def rows_of(tables, costs, given):
    (rows,) = group_rows(tables)
    rows.commits = type(rows.commits)()

    def read(group, costs):
        assert group == "g"
        return story_of(rows, {"topic": 12}, costs)

    request = Request(costs=costs, given=frozenset(given))
    return with_mends(replay(None, [read("g", costs)], request), read, request).to_pylist()


def test_a_low_fidelity_names_a_cost_that_mends_it(bounced):
    (row,) = rows_of(bounced, Costs(), ())
    assert row["fidelity"] < 0.1
    said, _, mend = row["caution"].partition("; with --cost ")
    assert said.startswith(MEANINGS["fidelity_moves"])
    name, _, rest = mend.partition("=")
    value_ms = int(rest.split("ms ")[0])
    field = name.replace("-", "_") + "_ms"
    (again,) = rows_of(bounced, Costs(**{field: value_ms}), {field})
    agreed = min(again["fidelity_moves"], again["fidelity_rebalances"])
    assert agreed > 0.5 > 0.1 > row["fidelity_moves"]
    assert row["caution"].endswith(f"rounds and moves agree with the records to {agreed:.0%}")


def test_the_command_marks_what_is_not_to_be_trusted_and_names_the_cost(bounced):
    words = ["replay", "--input", str(bounced.root), "--policy", "simple"]
    done = run(*words, "--format", "json")
    assert done.code == 0
    rows = json.loads(done.out)["rows"]
    assert len(rows) == 2 and all(row["fidelity"] < LOW_FIDELITY for row in rows)
    assert all("--cost " in row["caution"] and "agree with the" in row["caution"] for row in rows)
    assert "is low: moves differ" in done.err
    assert " low" in run(*words, width=250).out


def test_below_a_fidelity_of_nine_tenths_seconds_are_bounds_alone(tmp_path):
    """However narrow they are; and wider by what the replay of the group's own setting is off."""
    (rows,) = group_rows(tables_of("cooperative-sticky", tmp_path))
    low, sure = (
        replay(None, [story_of(rows, {"topic": 12}, costs)], Request(costs=costs)).to_pylist()[0]
        for costs in (Costs(), LIVED)
    )
    assert low["fidelity"] < SURE_FIDELITY <= sure["fidelity"]
    assert all(low[name] is None and sure[name] is not None for name in SECONDS)
    worst = min(low[f"fidelity_{name}"] for name in ("rebalances", "moves", "pause"))
    for name in SECONDS:  # every cost is given: one draw, and no spread
        assert sure[f"{name}_low"] == sure[f"{name}_high"] == sure[name]
        bounds = [low[f"{name}_{end}"] for end in ("low", "high")]
        assert bounds[0] == pytest.approx(bounds[1] * worst**2, abs=0.01)
    assert f"below {SURE_FIDELITY}" in low["reason"] and sure["reason"] is None
    assert None not in (low["rebalances"], low["moved"])


def test_a_good_fidelity_says_nothing():
    faith = dict.fromkeys(("fidelity", *MEANINGS), 0.95)
    assert caution(faith, "x") is None
    assert caution(dict.fromkeys(faith), "x") is None
    low = {**faith, "fidelity": 0.5, "fidelity_interval": 0.5}
    assert caution(low, None) == MEANINGS["fidelity_interval"]


def test_the_report_marks_rows_of_low_fidelity():
    good = {"group": "a", "policy": "eager", "fidelity": LOW_FIDELITY, "caution": None}
    low = {"group": "b", "policy": "eager", "fidelity": 0.02, "caution": "trust <nothing>"}
    unknown = {"group": "c", "policy": "eager"}
    page = policy_section([good, low, unknown])
    assert page.count("Low fidelity.") == 2
    assert page.count(">low</span>") == page.count(">not known</span>") == 1
    assert page.count("trust &lt;nothing&gt;") == 2  # above the table, and at the row
    assert "Low fidelity" not in policy_section([good])


def commits_of(group, n):
    rows = [(group, at, fleet.commit(group, "t", 0, at, at=at)) for at in range(1, n + 1)]
    return [(group, 0, fleet.classic(generation(group, 1, {"m-1": {"t": [0]}}, at=0))), *rows]


def test_commits_beyond_memory_are_read_in_parts_or_named(tmp_path, monkeypatch):
    """No more than four at once: b and c come together, a with six is told and not read."""
    records = [*commits_of("a", 6), *commits_of("b", 1), *commits_of("c", 3), *commits_of("d", 3)]
    dump = fleet.write_dump(tmp_path / "dump", records, topics=[("t", 1)])
    tables = local.run(dump, tmp_path / "tables")
    whole = {rows.group: rows.commits.times for rows in group_rows(tables)}
    monkeypatch.setattr(replay_rows, "MOST_COMMITS", 4)
    held, cut = [], replay_rows._cut

    def counted(tables, name, groups):
        made = cut(tables, name, groups)
        held.append((name, made.rows.num_rows))
        return made

    monkeypatch.setattr(replay_rows, "_cut", counted)
    found = list(group_rows(tables))
    assert [(rows.group, rows.n_unread_commits) for rows in found] == [
        ("a", 6),
        ("b", 0),
        ("c", 0),
        ("d", 0),
    ]
    assert [list(rows.commits.times.get(("t", 0), ())) for rows in found] == [
        [],
        *(list(whole[group]["t", 0]) for group in "bcd"),
    ]
    assert [n for name, n in held if name == "offset_commits"] == [4, 3]
    assert tables.rows_by_group("offset_commits") == {"a": 6, "b": 1, "c": 3, "d": 3}
    (only,) = group_rows(tables, groups=["d"])
    assert len(only.commits.times["t", 0]) == 3
    done = run("replay", "--input", str(tables.root), "--policy", "eager", "--format", "json")
    assert "a: its 6 commits are not read: replay holds 4 of a group at most" in done.err
    assert "b: its" not in done.err
    notes = {row["group"]: row["note"] or "" for row in json.loads(done.out)["rows"]}
    assert "its 6 commits are not read" in notes["a"] and "not read" not in notes["d"]
