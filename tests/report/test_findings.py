"""Every code: a fleet where it fires and one where it must not, alike but for what it is about."""

import gc
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import write_tables
from tests.report.fleet import START_MS, Script, deal, examine_all, rolling_bounce, tables, verdicts
from tests.report.test_slow_pollers import played, poll
from tests.report.test_turnover import deployment, scaled

from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES
from holdfast.fleet.analysis.findings.examination import Examination, all_rules
from holdfast.fleet.analysis.findings.finding import Basis, Finding, Severity, rule
from holdfast.fleet.analysis.group import rebalances
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.times import read_age
from holdfast.fleet.tables.columns.stored import NOT_LOADED
from holdfast.fleet.tables.reading import open_tables, read_tables

TOPICS = {"t": 4}
AB = ["a-1", "b-1"]
MINUTES = 60_000
HALF = MESSAGE_MAX_BYTES // 2


def quiet(topics: dict[str, int] | None = None, members: list[str] | None = None) -> Script:
    """A group that starts and then stays."""
    topics, members = topics or TOPICS, members or AB
    return Script("g", topics).settle(0, members, deal(topics, members), cause="first_seen")


def flapping(every_s: float, cause: str = "join", **more: Any) -> Script:
    script = quiet()
    for i in range(1, 12):
        script.settle(every_s * i, AB, deal(TOPICS, AB), cause=cause, gap=(1, 2), **more)
    return script


def bounce(*, away_s: float, visits: bool, restarts: int = 2, every_s: float = 100) -> Script:
    """Members restart in turn; ``visits``: their partitions go to the other one meanwhile."""
    script, ids = quiet(), list(AB)
    owners = deal(TOPICS, ids)
    for i in range(restarts):
        at, old = every_s * (i + 1), ids[i % 2]
        rest = [m for m in ids if m != old]
        kept = {tp: m for tp, m in owners.items() if m != old}
        lost = [tp for tp in owners if tp not in kept]
        between = {**kept, **dict.fromkeys(lost, rest[0])} if visits else kept
        script.settle(at, rest, between, cause="leave", gap=(1, 2))
        ids[i % 2] = f"{old[0]}-{i + 2}"
        owners = {**kept, **dict.fromkeys(lost, ids[i % 2])}
        script.settle(at + away_s, sorted(ids), kept, cause="restart")
        script.settle(at + away_s + 3, sorted(ids), owners, cause="restart")
    return script


def replaced() -> Script:
    """Both members come back so fast that one round each is enough."""
    script, ids = quiet(), list(AB)
    for i in range(2):
        ids[i] = ids[i][:-1] + "2"
        script.settle(100.0 * (i + 1), ids, deal(TOPICS, ids), cause="restart")
    return script


def moving(avoidable: int) -> Script:
    return quiet().settle(
        100,
        AB,
        deal(TOPICS, AB, 1),
        gap=(1, 3),
        n_moved=8,
        n_avoidable_moves=avoidable,
        cause="join",
    )


def recorded(n_bytes: int) -> Script:
    """A group whose second record has so many bytes."""
    script = quiet().settle(100, AB, deal(TOPICS, AB))
    for row, size in zip(script.rows["generations"], (1_000, n_bytes), strict=True):
        row["record_bytes"] = size
    return script


def lagging(lags: list[int | None], **more: Any) -> Script:
    return quiet().lag({("t", p): lag for p, lag in enumerate(lags)}, **more)


def committed(
    seconds_ago: dict[int, float], *, static: bool = False, lag: int = 50, **more: Any
) -> Script:
    """Work everywhere; each partition's last commit so many seconds before the end."""
    people = [(m, {"group_instance_id": m.upper() if static else None}) for m in AB]
    script = Script("g", TOPICS).settle(0, people, deal(TOPICS, AB))
    for partition in range(4):
        at = START_MS + 20 * MINUTES - round(seconds_ago.get(partition, 1) * 1000)
        script.lag({("t", partition): lag}, commit_timestamp=at, **more)
    return script


def tended(
    position_s: dict[int, float],
    *,
    commit_s: float = 1,
    age_s: float | None = None,
    lags: tuple[int, ...] = (500, 500, 500, 500),
    **more: Any,
) -> Script:
    """Work everywhere, by a live cluster: since when each position stands, and how old work is."""
    script, end = quiet(), START_MS + 20 * MINUTES
    for partition in range(4):
        script.lag(
            {("t", partition): lags[partition]},
            commit_timestamp=end - round(commit_s * 1000),
            position_timestamp=end - round(position_s.get(partition, commit_s) * 1000),
            lag_seconds=age_s,
            lag_seconds_basis=None if age_s is None else "record",
            **more,
        )
    return script


def nameless(commits_s: dict[int, float], lag: int = 900, **more: Any) -> Script:
    """A group that no record names a member of; each partition's last commit before the end."""
    script, end = Script("g", TOPICS), START_MS + 20 * MINUTES
    for partition, seconds in commits_s.items():
        at = end - round(seconds * 1000)
        script.lag({("t", partition): lag}, commit_timestamp=at, position_timestamp=at, **more)
    return script


def looping(restarts: int) -> Script:
    """One of two members restarts, and its partitions wait for it."""
    script, ids = quiet(), list(AB)
    owners = deal(TOPICS, ids)
    kept = {tp: m for tp, m in owners.items() if m == "a-1"}
    for i in range(restarts):
        script.settle(100.0 + 20 * i, ids[:1], kept, cause="leave")
        ids[1] = f"b-{i + 2}"
        owners = {tp: kept.get(tp, ids[1]) for tp in owners}
        script.settle(110.0 + 20 * i, ids, owners, cause="restart")
    return script


def doubled(kind: str) -> Script:
    return quiet().anomaly(kind, *AB, topic="t", partition=1)


def failing(*member_ids: str, at: int = 0, rounds: int = 1) -> Script:
    """A resource of a-1 that these workers report as failed, in round ``at`` of some rounds."""
    script = Script("g", {"shard": 4})
    for i in range(rounds):
        script.settle(100.0 * i, AB, deal({"shard": 4}, AB))
    owned = [row for row in script.rows["assignments"] if row["member_id"] == "a-1"]
    failed = {"topic": "shard", "partition": owned[0]["partitions"][0], "detail": "OSError"}
    return script.anomaly("failed_resource", *member_ids, generation=1 + at, **failed)


def in_one_location(at: int = 0, rounds: int = 1) -> Script:
    """Two members that say one place in round ``at`` of some rounds."""
    script = Script("g", {"orders": 4})
    for i in range(rounds):
        script.settle(100.0 * i, AB, deal({"orders": 4}, AB))
    return script.anomaly("shared_location", *AB, generation=1 + at)


def assignors(*names: str) -> Script:
    script = quiet()
    for i, name in enumerate(names):
        script.settle(100 * (i + 1), AB, deal(TOPICS, AB))
        script.rows["generations"][-1]["protocol"] = name
    return script


def waiting(seconds: float) -> Script:
    """One partition has no owner for a while, between two owners."""
    owners = deal(TOPICS, AB)
    part = {tp: m for tp, m in owners.items() if tp[1] != 3}
    return quiet().settle(100, AB, part).settle(100 + seconds, AB, owners)


def missed(n: int) -> Script:
    return quiet().settle(100, AB, deal(TOPICS, AB), n_missed_generations=n)


def eager_group(*, cooperative: bool) -> Script:
    script = quiet()
    for i in range(1, 4):
        owners = deal(TOPICS, AB, i)
        script.settle(300 * i, AB, owners, gap=(2, 9), cooperative=cooperative)
    return script


def emptied(lag: int) -> Script:
    return quiet().settle(100, [], {}).lag({("t", p): lag for p in range(4)})


def shares(*counts: int, topics: Any = None) -> Script:
    """Members with so many partitions each."""
    members = [f"m{i}-1" for i in range(len(counts))]
    owners, at = {}, 0
    for member, count in zip(members, counts, strict=True):
        owners |= {("t", p): member for p in range(at, at + count)}
        at += count
    people = [
        (m, {"subscribed_topics": topics[i]} if topics else {}) for i, m in enumerate(members)
    ]
    return Script("g", {"t": at}).settle(0, people, owners)


def dropped() -> Script:
    """A partition loses its owner and gets none."""
    owners = deal(TOPICS, AB)
    return quiet().settle(300, AB, {tp: m for tp, m in owners.items() if tp[1]})


Fleet = Callable[[], Script]
CASES: dict[str, tuple[Fleet, Fleet]] = {
    "HF101": (lambda: flapping(30), lambda: flapping(90)),
    "HF102": (lambda: bounce(away_s=12, visits=True), replaced),
    "HF103": (lambda: moving(6), lambda: moving(1)),
    "HF104": (lambda: lagging([5000, 10, 2000, 0]), lambda: lagging([2500, 2510, 0, 0])),
    "HF105": (lambda: committed({0: 900, 2: 900}), lambda: committed({0: 900})),
    "HF106": (lambda: shares(2, 0), lambda: shares(2, 1)),
    "HF107": (lambda: lagging([None] * 4), lambda: lagging([None, None, 3, 4])),
    "HF108": (lambda: doubled("double_owner"), lambda: doubled("generation_reset")),
    "HF109": (
        lambda: committed({0: 900, 2: 900}, static=True),
        lambda: committed({0: 900, 2: 900}),
    ),
    "HF110": (
        lambda: assignors("range", "cooperative-sticky"),
        lambda: assignors("cooperative-sticky", "sticky"),
    ),
    "HF111": (
        lambda: bounce(away_s=12, visits=True),
        lambda: bounce(away_s=12, visits=False),
    ),
    "HF112": (lambda: waiting(200), lambda: waiting(60)),
    "HF113": (lambda: flapping(100, "spurious"), lambda: flapping(100, "join")),
    "HF114": (dropped, lambda: waiting(60)),
    "HF115": (lambda: emptied(900), lambda: emptied(1)),
    "HF116": (
        lambda: lagging([5] * 4, clamped="before_begin", log_start_offset=1500),
        lambda: lagging([5] * 4),
    ),
    "HF117": (lambda: shares(5, 1), lambda: shares(3, 2)),
    "HF118": (lambda: missed(4), lambda: missed(1)),
    "HF119": (
        lambda: eager_group(cooperative=False),
        lambda: eager_group(cooperative=True),
    ),
    "HF120": (lambda: lagging([0] * 4, clamped="beyond_end"), lambda: lagging([0] * 4)),
    "HF121": (lambda: doubled("unreadable_assignment"), lambda: doubled("double_owner")),
    "HF122": (lambda: recorded(HALF + 1), lambda: recorded(HALF)),
    "HF124": (lambda: looping(6), lambda: looping(4)),
    "HF125": (lambda: tended({1: 400}, age_s=400), lambda: tended({1: 400}, age_s=30)),
    "HF126": (lambda: tended({}, age_s=400), lambda: tended({}, age_s=200)),
    "HF127": (
        lambda: played(60.4, 12, 3, **poll(60))[0],
        lambda: played(30, 12, 3, **poll(60))[0],
    ),
    "HF129": (
        lambda: lagging([5] * 4, not_subscribed=True),
        lambda: lagging([5] * 4, not_subscribed=False),
    ),
    "HF130": (in_one_location, lambda: in_one_location(rounds=2)),
    "HF132": (lambda: scaled()[0], lambda: deployment()[0]),
    "HF131": (lambda: failing("a-1"), lambda: failing("a-1", rounds=2)),
}


OF_A_FOLDER = {"HF123"}
"""About tables as a whole: no script of a group has them."""
OF_NOW = {"HF128"}
OF_OURSELVES = {"HF133"}
"""About a rule that failed: ``tests/report/test_stored_findings.py`` plants one."""
"""About what coordinators say: ``tests/report/test_now.py`` has them."""


def examination(script: Script) -> Examination:
    (found,) = examine_all(read_tables(tables(script)), last_ms=START_MS + 20 * MINUTES)
    return found


def examine(script: Script) -> dict[str, Finding]:
    return {f.code: f for f in examination(script).findings}


def test_every_rule_has_its_two_fleets_and_there_are_enough() -> None:
    assert sorted({*CASES, *OF_A_FOLDER, *OF_NOW, *OF_OURSELVES}) == [
        rule.code for rule in all_rules()
    ]
    assert len(CASES) >= 12


def test_every_rule_has_all_its_texts() -> None:
    for found in all_rules():
        texts = (found.name, found.what, found.why, found.how, found.mend)
        assert all(text.strip() for text in texts), found.code


def test_a_code_is_registered_once() -> None:
    again = rule("HF101", name="", severity=Severity.INFO, what="", why="", how="", mend="")
    with pytest.raises(AssertionError, match="HF101 is registered twice"):
        again(lambda history: ())
    assert len({found.code for found in all_rules()}) == len(all_rules())


@pytest.mark.parametrize("code", CASES)
def test_fires(code: str) -> None:
    finding = examine(CASES[code][0]())[code]
    assert finding.text
    assert finding.command
    assert 0 <= finding.cost_lower_s <= finding.cost_upper_s or finding.cost_lower_s == 0
    evidence = finding.evidence
    assert evidence.generations.total or evidence.partitions.total
    assert START_MS <= evidence.from_ms <= evidence.to_ms <= START_MS + 20 * MINUTES


@pytest.mark.parametrize("code", CASES)
def test_does_not_fire(code: str) -> None:
    assert code not in examine(CASES[code][1]())


@pytest.mark.parametrize(
    ("code", "lower", "upper"),
    [
        ("HF101", 0, 0),  # nothing moved in these rounds, so nothing stood still
        ("HF103", 3.0, 9.0),  # 4 moved partitions, 1 to 3 s each, 6 of 8 moves avoidable
        ("HF105", 0, 1800),  # two partitions, 900 s each
        ("HF112", 200, 200),  # one partition
        ("HF114", 900, 900),  # one partition from 300 s to 1200 s
        ("HF115", 4400, 4400),  # four partitions from 100 s to 1200 s
        ("HF131", 0, 1200),  # one resource since the last round
        ("HF119", 24, 108),  # three rounds, 4 partitions, 2 to 9 s each
    ],
)
def test_costs_are_partition_seconds(code: str, lower: float, upper: float) -> None:
    finding = examine(CASES[code][0]())[code]
    assert (finding.cost_lower_s, finding.cost_upper_s) == (lower, upper)


@pytest.mark.parametrize(
    "code", ["HF108", "HF110", "HF115", "HF116", "HF120", "HF121", "HF122", "HF130", "HF131"]
)
def test_what_a_record_states_is_called_stated(code: str) -> None:
    assert examine(CASES[code][0]())[code].basis is Basis.STATED


STALLED: dict[str, Callable[..., Script]] = {
    "HF105": lambda **more: committed({0: 900, 2: 900}, **more),
    "HF109": lambda **more: committed({0: 900, 2: 900}, static=True, **more),
    "HF125": lambda lag=50, **more: tended({1: 400}, age_s=400, lags=(0, lag, 0, 0), **more),
}
"""What stands still with so much lag."""


@pytest.mark.parametrize("code", STALLED)
def test_control_records_of_transactions_are_no_work(code: str) -> None:
    make = STALLED[code]
    assert code not in examine(make(lag=2, has_unread=False))
    known, unknown = (examine(make(lag=2, has_unread=told))[code] for told in (True, None))
    assert known.severity is Severity.ERROR and "marker" not in known.text
    assert unknown.severity is Severity.WARN
    assert unknown.text.endswith("; the unread record may be a transaction marker")
    many = examine(make(lag=11, has_unread=None))[code]
    assert many.severity is Severity.ERROR and "marker" not in many.text


def test_where_no_cluster_reported_the_age_either_no_progress_is_information() -> None:
    found = examine(tended({1: 400}, lags=(0, 2, 0, 0)))["HF125"]
    assert found.severity is Severity.INFO
    assert "may be a transaction marker" in found.text


def test_a_record_that_came_a_moment_ago_makes_nobody_stuck() -> None:
    fresh = {"lag_seconds_basis": "record", "lag_seconds": 4.0}
    assert "HF105" not in examine(committed({0: 900, 2: 900}, **fresh))
    old = {"lag_seconds_basis": "at_least", "lag_seconds": 800.0}
    found = examine(committed({0: 900, 2: 900}, **old))["HF105"]
    assert found.cost_upper_s == 1_600, "since the records came"
    # Of a member that hangs, a partition without work before gets a record: it hangs still.
    script, end = committed({0: 900}, **old), START_MS + 20 * MINUTES
    (row,) = (row for row in script.rows["lag"] if row["partition"] == 2)
    row |= {"commit_timestamp": end - 900_000, "lag_seconds": 4.0}
    assert "HF105" in examine(script)


@pytest.mark.parametrize("hours", [2, 48])
def test_a_group_without_a_record_of_members_is_found_when_nobody_commits(hours: int) -> None:
    found = examine(nameless({0: hours * 3600, 1: hours * 3600}))["HF115"]
    assert found.severity is Severity.WARN and found.basis is Basis.INFERRED
    assert found.text == (
        f"no commit for {hours}.0 hours or more, and 1,800 records wait in 2 partitions; "
        "the group has no record of members"
    )
    assert found.cost_upper_s == 2 * hours * 3600
    assert found.evidence.partitions.total == 2


def test_such_a_group_that_commits_or_has_little_to_read_is_left_alone() -> None:
    assert not examine(nameless({0: 1_800, 1: 1_800}))
    assert not examine(nameless({0: 7_200}, lag=900))
    assert not examine(nameless({0: 7_200, 1: 7_200}, has_unread=False))
    came = {"lag_seconds": 60.0, "lag_seconds_basis": "record"}
    assert not examine(nameless({0: 7_200, 1: 7_200}, **came)), "the records came a moment ago"
    some = examine(nameless({0: 7_200, 1: 7_200, 2: 60}))["HF115"]
    assert some.severity is Severity.INFO and some.text.endswith(", which still commits others")
    old = {"lag_seconds": 4_000.0, "lag_seconds_basis": "record"}
    assert {*examine(nameless({0: 60, 1: 60}, **old))} == {"HF126"}
    assert not examine(nameless({0: 60, 1: 60}, **(old | {"lag_seconds": 1_800.0})))


def test_a_topic_that_nobody_subscribes_to_is_reported_with_its_lag() -> None:
    found = examine(lagging([5_000, 3, 0, 0], not_subscribed=True))["HF129"]
    assert found.severity is Severity.INFO
    assert found.text == (
        "commits in 4 partitions of 1 topic that no member subscribes to, 5,003 records behind"
    )
    assert found.command.endswith("--group g --topic t")


def test_a_resource_that_fails_at_its_owner_is_worse_than_one_that_runs_elsewhere() -> None:
    stands = examine(failing("a-1", "b-1"))["HF131"]
    assert stands.severity is Severity.ERROR
    assert stands.text == "the work on 1 resource has failed (OSError): no worker does it"
    assert stands.evidence.members.shown == ("a-1", "b-1")
    (place,) = stands.evidence.partitions.shown
    assert place.startswith("shard-")
    script = failing("b-1")
    script.rows["assignments"] = [r for r in script.rows["assignments"] if r["member_id"] != "a-1"]
    unowned = examine(script)["HF131"]
    assert unowned.text.endswith("no worker does it")
    runs = examine(failing("b-1"))["HF131"]
    assert (runs.severity, runs.cost_upper_s) == (Severity.WARN, 0)
    assert runs.text.endswith("another worker does it")


def test_rounds_in_which_workers_report_failures_have_a_cause() -> None:
    script = quiet()
    for i in range(1, 5):
        script.settle(100.0 * i, AB, deal(TOPICS, AB), cause="spurious", gap=(0, 0))
    assert "HF113" in examine(script)
    for i in (2, 3):  # reported in two rounds: two rounds report other things than the one before
        script.anomaly("failed_resource", "a-1", generation=i, topic="t", partition=0)
    assert "HF113" not in examine(script)


def test_a_record_near_the_limit_is_an_error_and_its_size_is_reported() -> None:
    found = examine(recorded(900_000))["HF122"]
    assert found.severity is Severity.WARN
    assert "900,000 bytes with 2 members, 86 % of the 1,048,588" in found.text
    assert examine(recorded(1_000_000))["HF122"].severity is Severity.ERROR
    assert found.evidence.figures["record_bytes"] == 900_000


def test_tables_without_sizes_of_records_have_no_large_ones() -> None:
    script = recorded(900_000)
    for row in script.rows["generations"]:
        del row["record_bytes"]
    assert "HF122" not in examine(script)


def test_the_first_generation_seen_is_no_rebalance() -> None:
    script = Script("g", TOPICS)
    for i in range(10):  # nine rebalances within ten minutes, after the first record
        cause = "join" if i else "first_seen"
        script.settle(30 * i, AB, deal(TOPICS, AB, i), cause=cause)
    assert "HF101" not in examine(script)
    assert examination(script).history.n_rebalances == 9


def test_a_perfect_bounce_under_a_delay_is_neither_churn_nor_a_storm() -> None:
    ids, topics = [f"m{i}-1" for i in range(5)], {"t": 10}
    script = Script("g", topics).settle(0, ids, deal(topics, ids), cause="first_seen")
    for i in range(5):
        owners, gone = dict(script.owners), ids[i]
        kept = {tp: m for tp, m in owners.items() if m != gone}
        script.settle(100 + 20 * i, [m for m in ids if m != gone], kept, cause="leave")
        ids[i] = f"m{i}-2"
        back = {tp: kept.get(tp, ids[i]) for tp in owners}
        script.settle(110 + 20 * i, ids, back, cause="restart")
    assert not examine(script).keys() & {"HF101", "HF102"}


def test_an_announced_departure_is_neither_needless_nor_without_a_cause() -> None:
    members, topics = ["a-1", "b-1", "c-1"], {"t": 12}
    script = Script("g", topics).settle(0, members, deal(topics, members), cause="first_seen")
    for i in range(4):
        script.settle(100 * i + 90, members, script.owners, cause="spurious")
        gone, rest = members[0], members[1:]
        moved = {tp: m if m != gone else rest[tp[1] % 2] for tp, m in script.owners.items()}
        script.settle(100 * i + 91, members, moved, cause="spurious", n_avoidable_moves=4)
        members = rest
        script.settle(100 * i + 92, members, moved, cause="leave", n_avoidable_moves=0)
        members = [*rest, f"{gone[0]}-{i + 2}"]
        script.settle(100 * i + 95, members, deal(topics, members), n_avoidable_moves=0)
    assert not examine(script).keys() & {"HF103", "HF113"}


def deploy_with_commits(every_s: float, late_s: float) -> Script:
    """A deploy whose partitions are committed regularly, and late after each move."""
    script = bounce(away_s=12, visits=True)
    moved: dict[tuple[str, int], list[float]] = {}
    for row in script.rows["movements"]:
        if row["kind"].startswith("moved"):
            after_s = (row["timestamp"] - START_MS) / 1000
            moved.setdefault((row["topic"], row["partition"]), []).append(after_s)
    for (topic, partition), at_s in moved.items():
        edges = [0.0, *at_s, 400.0]
        for begin, end in pairwise(edges):
            first = begin + (late_s if begin else 0.0) + every_s
            for after_s in np.arange(first, end, every_s):
                script.commit(after_s, topic, partition)
    return script


STATIC = "--policy cooperative-sticky --static "
"""What is simulated for a cooperative group whose members keep no state."""


@pytest.mark.parametrize(
    ("late_s", "words"),
    [
        (0.0, STATIC),
        (4.0, STATIC),
        (7.0, "--policy deferred --delay 20s "),
        (11.0, "--policy deferred --delay 20s "),
    ],
)
def test_deferred_is_advised_where_a_move_costs_more_than_half_a_restart(
    late_s: float, words: str
) -> None:
    both = examine(deploy_with_commits(0.5, late_s))
    assert ("--policy deferred " in both["HF111"].command) is ("deferred" in words)
    found = both["HF102"]
    assert found.evidence.figures["longest_restart_s"] == 12
    assert found.evidence.figures["move_costs_s"] == pytest.approx(late_s, abs=0.01)
    assert f"the first commit came {late_s:.1f} s later than usual (median of " in found.text
    assert words in found.command


def test_what_a_move_costs_is_not_said_where_commits_before_it_are_gone() -> None:
    """A compacted log has the last commit alone: then the first one after a move is not there."""
    script = deploy_with_commits(0.5, 11.0)
    newest = {(row["topic"], row["partition"]): row for row in script.rows["offset_commits"]}
    script.rows["offset_commits"] = list(newest.values())
    found = examine(script)["HF102"]
    assert "than usual" not in found.text and "move_costs_s" not in found.evidence.figures
    assert STATIC in found.command


@pytest.mark.parametrize(
    ("groups", "at_once", "searched", "is_known"),
    [
        (None, 0, 10**7, False),
        (["g"], 0, 10**7, True),
        (["g"], 0, 0, False),
        (None, 10**7, 0, True),
    ],
)
def test_of_very_many_commits_only_those_of_one_group_are_read(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    groups: list[str] | None,
    at_once: int,
    searched: int,
    is_known: bool,
) -> None:
    monkeypatch.setattr(rebalances, "MOST_COMMITS", at_once)
    monkeypatch.setattr(rebalances, "MOST_SEARCHED", searched)
    folder = write_tables(tables(deploy_with_commits(0.5, 11.0)), tmp_path)
    kept = open_tables(folder).load(groups, without=NOT_LOADED)
    found = examine_all(kept, groups, last_ms=START_MS + 20 * MINUTES)
    texts = [f.text for e in found for f in e.findings if f.code == "HF102"]
    assert ["than usual" in text for text in texts] == [is_known]


def test_rare_commits_do_not_look_like_state() -> None:
    found = examine(deploy_with_commits(5.0, 0.0))["HF102"]
    assert found.evidence.figures["move_costs_s"] <= 0.01
    assert STATIC in found.command


def test_a_stuck_member_is_reported_before_kafka_removes_it() -> None:
    assert examine(committed({0: 150, 2: 150}))["HF105"].evidence.members.shown == ("a-1",)
    # Nobody of the group commits so often: then two minutes tell nothing.
    assert "HF105" not in examine(committed(dict.fromkeys(range(4), 150)))


def test_a_hung_member_is_counted_with_what_it_has_never_committed():
    script = Script("g", TOPICS).settle(0, AB, deal(TOPICS, AB))
    for partition in range(4):
        at = START_MS + 20 * MINUTES - (900_000 if partition == 0 else 1_000)
        never = {"current_offset": None, "commit_timestamp": None, "status": "none"}
        never |= {"lag": None, "lag_by_reset": 1050}
        more = never if partition == 2 else {"commit_timestamp": at}
        script.lag({("t", partition): 50}, **more)
    found = examine(script)["HF105"]
    assert "1 member: 2 partitions with unread records" in found.text
    assert found.evidence.partitions.shown == ("t-0", "t-2")


def test_a_hot_partition_is_no_case_for_an_assignor() -> None:
    hot = examine(lagging([9_000, 10, 100, 0]))["HF104"]
    assert "one partition, t-0, has 9,000 of them" in hot.text
    assert "lag-sticky" not in hot.command
    assert "lag-sticky" in examine(lagging([5_000, 10, 4_000, 0]))["HF104"].command


def test_a_crash_loop_is_one_member_and_no_deploy() -> None:
    found = examine(looping(12))
    assert "1 member restarted 12 times" in found["HF124"].text
    assert found["HF124"].evidence.members.shown == ("b",)
    assert "HF102" not in found


def test_without_a_cluster_no_progress_is_only_information() -> None:
    assert examine(tended({1: 400}))["HF125"].severity is Severity.INFO
    assert examine(tended({1: 400}, age_s=400))["HF125"].severity is Severity.ERROR
    assert "HF125" not in examine(tended({1: 400}, commit_s=200, age_s=400))


def test_a_storm_of_thirty_is_an_error_and_one_of_ten_a_warning() -> None:
    assert examine(flapping(30))["HF101"].severity is Severity.WARN
    script = quiet()
    for i in range(40):
        script.settle(10 * (i + 1), AB, deal(TOPICS, AB))
    assert examine(script)["HF101"].severity is Severity.ERROR


def test_eager_members_of_a_cooperative_group_are_looked_for() -> None:
    assert "--table members" in examine(eager_group(cooperative=False))["HF119"].command
    script = eager_group(cooperative=False)
    for row in script.rows["generations"]:
        row["protocol"] = "range"
    assert "--from range --to cooperative-sticky" in examine(script)["HF119"].command


def test_standby_members_are_information() -> None:
    assert examine(shares(1, 1, 0))["HF106"].severity is Severity.INFO
    assert examine(shares(2, 2, 0))["HF106"].severity is Severity.WARN


def test_members_with_other_topics_may_be_uneven() -> None:
    assert "HF117" not in examine(shares(5, 1, topics=[["t"], ["u"]]))


def test_the_delay_that_is_advised_covers_the_restarts_measured() -> None:
    found = examine(of_protocol(bounce(away_s=12, visits=True), "holdfast-deferred"))["HF111"]
    assert "replay " in found.command and "--policy deferred --delay 20s" in found.command
    assert "12 s at most" in found.text
    waited = of_protocol(waiting(200), "holdfast-deferred")
    assert "--policy deferred" in examine(waited)["HF112"].command


def of_protocol(script: Script, protocol: str, **members: Any) -> Script:
    """The same group under another protocol, with members of other ids."""
    for row in script.rows["generations"]:
        row["protocol"] = protocol
    for row in script.rows["members"]:
        row.update(members, client_host=f"/{row['client_id']}")
    return script


STATELESS = {
    "HF101": lambda: flapping(30),
    "HF102": lambda: bounce(away_s=12, visits=True),
    "HF111": lambda: bounce(away_s=12, visits=True),
    "HF112": lambda: waiting(200),
    "HF119": lambda: eager_group(cooperative=False),
    "HF124": lambda: looping(6),
}


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "sticky", "roundrobin"])
@pytest.mark.parametrize("code", STATELESS)
def test_nothing_advises_to_let_partitions_of_stateless_members_wait(
    code: str, protocol: str
) -> None:
    found = examine(of_protocol(STATELESS[code](), protocol))
    for finding in found.values():
        assert not {"deferred", "failback", "incremental"} & {*finding.command.split()}, finding
    if code in ("HF102", "HF111", "HF119") and protocol != "cooperative-sticky":
        assert "--to cooperative-sticky --plan" in found[code].command
    elif code in ("HF102", "HF111"):
        assert STATIC in found[code].command


LIBRARY = {
    "confluent": {"client_id": "payments-7", "rack": ""},
    "java": {"client_id": "consumer-g-3"},
    "kafka-python": {"client_id": "kafka-python-3.0.12"},
    "aiokafka": {"client_id": "aiokafka-0.14.0"},
    "holdfast": {"client_id": "holdfast"},
}


@pytest.mark.parametrize("client", LIBRARY)
def test_a_plan_is_one_for_the_client_that_the_members_run(client: str) -> None:
    for code in ("HF102", "HF111", "HF119"):
        found = examine(of_protocol(STATELESS[code](), "range", **LIBRARY[client]))[code]
        assert found.command == (
            f"holdfast upgrade-check --client {client} --from range --to cooperative-sticky --plan"
        )


def test_where_nobody_knows_the_client_a_person_chooses() -> None:
    found = examine(of_protocol(eager_group(cooperative=False), "range"))["HF119"]
    assert "--client 'confluent|java|kafka-python|aiokafka|holdfast' --from range" in found.command
    # Two libraries in one group: a person chooses one of the two.
    script = of_protocol(eager_group(cooperative=False), "range", **LIBRARY["java"])
    script.rows["members"][-1] |= LIBRARY["confluent"]
    assert "--client 'confluent|java' --from range" in examine(script)["HF119"].command
    # No client of Java's has that assignor: then it is a consumer with one of its own.
    found = examine(of_protocol(eager_group(cooperative=False), "lag-sticky"))["HF119"]
    assert "--client 'confluent|kafka-python|aiokafka|holdfast' --from lag-sticky" in found.command
    script = of_protocol(eager_group(cooperative=False), "lag-sticky", **LIBRARY["java"])
    assert "--table members" in examine(script)["HF119"].command


@pytest.mark.parametrize("client_id", ["sarama", "kgo", "kafkajs"])
def test_of_a_client_without_a_plan_its_members_are_shown(client_id: str) -> None:
    script = of_protocol(eager_group(cooperative=False), "range", client_id=client_id)
    found = examine(script)["HF119"]
    assert "--table members" in found.command
    assert "for which no plan exists" in found.text


def test_stopping_and_starting_the_whole_group_is_not_a_deploy() -> None:
    script = quiet().settle(100, [], {}).settle(200, ["a-2", "b-2"], deal(TOPICS, ["a-2", "b-2"]))
    assert not examine(script)


def test_a_quiet_group_has_no_findings() -> None:
    assert examine(quiet()) == {}


def migrated(*types_and_protocols: tuple[str, str]) -> Script:
    """A group whose protocol is another one in each generation."""
    script = assignors(*(name for _, name in types_and_protocols))
    for row, (kind, _) in zip(script.rows["generations"][1:], types_and_protocols, strict=True):
        row["group_type"] = kind
    return script


def test_one_migration_there_and_back_is_no_mix() -> None:
    there, back = ("consumer", "uniform"), ("classic", "cooperative-sticky")
    assert "HF110" not in examine(migrated(there))
    assert "HF110" not in examine(migrated(there, back))
    found = examine(migrated(there, back, there))["HF110"]
    assert "uniform" not in found.command
    assert "--table members" in found.command


def test_evidence_says_how_much_of_it_is_not_shown() -> None:
    evidence = examine(flapping(30))["HF101"].evidence
    assert (len(evidence.generations.shown), evidence.generations.total) == (10, 11)
    assert evidence.generations.text(" ", 2).endswith(" and 9 more")


def test_the_worst_group_comes_first() -> None:
    calm, bad, worse = quiet(), lagging([0] * 4, clamped="beyond_end"), doubled("double_owner")
    calm.group, bad.group, worse.group = "calm", "bad", "worse"
    for script in (calm, bad, worse):
        for rows in script.rows.values():
            for row in rows:
                row["group"] = script.group
    held = read_tables(tables(calm, bad, worse))
    for most, names in ((None, ["worse", "bad", "calm"]), (2, ["worse", "bad"])):
        found = verdicts(held, most, last_ms=START_MS + MINUTES)
        assert [verdict.heading["group"] for verdict in found] == names


def test_of_a_fleet_one_group_is_in_memory_at_a_time() -> None:
    held, at_once = read_tables(tables(*(rolling_bounce(f"g{i}") for i in range(5)))), []

    def track(names: Sequence[str]) -> Iterator[str]:
        for name in names:
            at_once.append(sum(isinstance(one, GroupHistory) for one in gc.get_objects()))
            yield name

    gc.collect()
    assert len(verdicts(held, track=track)) == 5
    assert max(at_once) - at_once[0] <= 1


@pytest.mark.parametrize(
    ("notes", "age_s", "stale"),
    [
        ({"query": "q", "every_seconds": 30}, 301, True),
        ({"query": "q", "every_seconds": 30}, 299, False),
        ({"query": "q", "every_seconds": 600}, 1_799, False),
        ({"query": "q", "every_seconds": 600}, 1_801, True),
        ({"query": "q", "every_seconds": None}, 86_000, False),
        ({"query": "q", "every_seconds": None}, 87_000, True),
        ({}, 10_000_000, False),  # a history is of its moment
    ],
)
def test_tables_of_a_dead_stream_do_not_look_healthy(
    monkeypatch: pytest.MonkeyPatch, notes: dict[str, Any], age_s: int, *, stale: bool
) -> None:
    taken = {"taken_at": "2025-11-21T09:00:00+00:00", **notes}
    now_ms = START_MS + 3_600_000 + age_s * 1000
    held = read_tables(tables(quiet()))
    monkeypatch.setattr(held, "newest_notes", lambda: taken)
    (found,) = examine_all(
        held, last_ms=START_MS + MINUTES, age=read_age(held.newest_notes(), now_ms)
    )
    assert [f.code for f in found.findings] == ["HF123"] * stale


def test_a_dead_stream_is_started_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-b", "k:9092", "--command-config", "my file", "--group", "a;b", "--group=-x"]
    notes = {"taken_at": "2025-11-21T09:00:00+00:00", "query": "q", "every_seconds": 45}
    held = read_tables(tables(quiet()))
    for started, expected in (
        (words, "-b k:9092 --command-config 'my file' --group 'a;b' --group=-x"),
        ([], "-b HOST:PORT"),
    ):
        monkeypatch.setattr(held, "newest_notes", lambda s=started: {**notes, "started_with": s})
        (found,) = examine_all(
            held, last_ms=START_MS + MINUTES, age=read_age(held.newest_notes(), START_MS + 10**10)
        )
        (finding,) = found.findings
        assert finding.command == f"holdfast watch {expected} -o DIR --every 45s"


def test_names_in_commands_are_quoted_for_the_shell() -> None:
    script = rolling_bounce("x; rm -rf / #\x1b[0m")
    commands = [f.command for f in examination(script).findings if "--group" in f.command]
    assert commands
    for command in commands:
        assert "'x; rm -rf / #\\u001b[[]0m'" in command  # no pattern either


def test_groups_without_some_tables_are_examined_all_the_same() -> None:
    whole = tables(rolling_bounce())
    for name in ("members", "movements", "rebalances", "ownership_gaps", "assignments"):
        part = {key: rows for key, rows in whole.items() if key != name}
        examine_all(read_tables(part), last_ms=START_MS + 10 * MINUTES)


def test_a_deploy_leads_and_what_follows_from_it_stands_under_it() -> None:
    found = examination(bounce(away_s=12, visits=True, restarts=6, every_s=60))
    shown = [(f.code, f.follows) for f in found.findings]
    at = [code for code, _ in shown].index("HF102")
    assert shown[at] == ("HF102", "")
    assert sorted(shown[at + 1 : at + 4]) == [
        (code, "HF102") for code in ("HF101", "HF103", "HF111")
    ]


def test_a_storm_that_a_deploy_did_not_make_stands_for_itself() -> None:
    found = examine(flapping(30))
    assert found["HF101"].follows == ""
