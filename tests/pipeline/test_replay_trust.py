"""A replay that does not agree with its records says so, and names what would mend it."""

from __future__ import annotations

import json

import pytest
from tests.cli.running import run
from tests.pipeline import local, worlds

from holdfast.model.fidelity import LOW_FIDELITY
from holdfast.pipeline.replay.replay import Request, replay
from holdfast.pipeline.replay.replay_mends import with_mends
from holdfast.pipeline.replay.replay_rows import group_rows
from holdfast.pipeline.replay.replay_story import story_of
from holdfast.pipeline.replay.replay_trust import MEANINGS, caution
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
    folder = tmp_path_factory.mktemp("bounced")
    setup = {"scenario": "rolling-bounce", "members": 4, "partitions": 12, "seed": 3}
    played = worlds.play("g", policy="eager", costs=LIVED, **setup)
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
