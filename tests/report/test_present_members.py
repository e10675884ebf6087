"""The members table: who is there now, where, since when, and how far behind."""

from __future__ import annotations

from tests.report.fleet import START_MS, Script, deal, rolling_bounce, tables
from tests.report.now import answers, member, seen

from holdfast.cluster.snapshot import JOINING
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.analysis.group.present_members import PresentMember, present_members
from holdfast.fleet.report.drawing.writing import render
from holdfast.fleet.tables.reading import read_tables

LAST_MS = START_MS + 600_000


def lagging() -> Script:
    """Two members since the start, one of which was restarted after a minute."""
    topics = {"t": 4}
    script = Script("g", topics)
    host = {"client_host": "/10.0.0.8", "rack": ""}
    script.settle(0, ["a-1", "b-1"], deal(topics, ["a-1", "b-1"]), cause="first_start")
    script.settle(60, ["a-1", ("b-2", host)], deal(topics, ["a-1", "b-2"]), cause="restart")
    commits = {"commit_timestamp": START_MS + 90_000, "lag_seconds": 7.0}
    script.lag({("t", 0): 0, ("t", 2): None})
    return script.lag({("t", 1): 30, ("t", 3): 12}, **commits)


def members(
    script: Script, live: LiveGroups = NOT_QUERIED, awaited: tuple[str, ...] = ()
) -> dict[str, PresentMember]:
    held = read_tables(tables(script))
    history = read_group(held, script.group, LAST_MS, live=live.of(script.group))
    return {one.member_id: one for one in present_members(history, awaited)}


def test_a_member_has_its_host_its_client_and_the_lag_of_its_partitions() -> None:
    found = members(lagging())
    assert list(found) == ["b-2", "a-1"]  # furthest behind first
    assert found["b-2"] == PresentMember(
        member_id="b-2",
        client_id="b",
        host="/10.0.0.8",
        client="confluent",
        n_partitions=2,
        since_ms=START_MS + 60_000,
        commit_ms=START_MS + 90_000,
        lag=42,
        lag_s=7.0,
    )
    one = found["a-1"]
    assert (one.since_ms, one.is_since_first) == (START_MS, True)
    assert (one.lag, one.lag_s, one.commit_ms, one.client) == (0, None, None, "")


def test_members_are_those_of_the_coordinator_where_it_was_asked() -> None:
    moved = (("t", (0, 1, 2)),)
    people = [member("b-2", host="/10.9.9.9", partitions=moved), member("c-1", instance_id="s")]
    found = members(lagging(), answers((600, [seen("g", JOINING, people)])), ("c-1",))
    assert [*found] == ["c-1", "b-2"]
    new, old = found["c-1"], found["b-2"]
    assert (new.name, new.is_awaited, new.since_ms, new.lag) == ("s", True, None, None)
    assert (old.host, old.n_partitions, old.lag, old.client) == ("/10.9.9.9", 3, 42, "confluent")


def test_a_group_that_rebalances_says_for_how_long_and_whom_it_waits_for() -> None:
    one = seen("g", JOINING, [member("a-1", host="/10.0.0.7"), "new-1"])
    live = answers((560, [one]), (600, [one]))
    page = render(read_tables(tables(lagging())), "t", ["g"], last_ms=LAST_MS, live=live)
    words = "rebalancing for 40 s, waiting for member a on host /10.0.0.7"
    assert words in page and "<strong" in page.split(words)[0][-60:]
    assert "waited for</strong>" in page.split("Members of g")[-1]


def test_a_group_without_members_says_so_and_a_past_window_has_owners_without_lag() -> None:
    script = rolling_bounce()
    script.settle(500, [], {}, cause="leave")
    assert "The group has no members." in render(read_tables(tables(script)), "t")
    page = render(read_tables(tables(rolling_bounce())), "t")
    assert "No positions and no lag are recorded" in page
    owned = page.split("Partitions of etl")[-1].split("</table>")[0]
    assert owned.count("<tr>") == 1 + 12 and "worker-0" in owned
