"""What coordinators say now: since when a group rebalances, whom it waits for, what is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator as Schema
from tests.cli.running import write_tables
from tests.report.fleet import START_MS, Script, deal, examine_all, tables, verdicts
from tests.report.now import answers, member, seen
from tests.report.served import following
from tests.report.test_findings import emptied, flapping, quiet
from werkzeug.test import Client

from holdfast.cluster.snapshot import JOINING, SYNCING, SeenGroup, SeenGroups, SeenMember
from holdfast.core.kinds import GroupType
from holdfast.fleet.analysis.findings.doctor import Verdict, to_json
from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.analysis.findings.finding import Basis, Finding, Severity
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.report.drawing.writing import render
from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.report.serving.group_index import IndexView, read_index, select
from holdfast.fleet.report.serving.live import (
    LiveAnswers,
    index_now,
    of_records,
    rebalancing_s,
    verdicts_now,
)
from holdfast.fleet.report.serving.served_fleet import ServedFleet
from holdfast.fleet.tables.reading import read_tables

ABC = ["a-1", "b-1", "c-1"]
END_S = 1_200
LOCAL = {"Host": "localhost:9318"}


def group(
    committed_s: dict[str, float] | None = None,
    lag: int = 50,
    *,
    cooperative: bool = True,
    **more: Any,
) -> Script:
    """A group of three that was settled after 0 s; the last commit of each member, so many ago."""
    topics = {"t": 3}
    script = Script("g", topics).settle(0, ABC, deal(topics, ABC), cooperative=cooperative)
    for p, name in enumerate(ABC):
        at = START_MS + 1000 * END_S - round(1000 * (committed_s or {}).get(name, 3))
        script.lag({("t", p): lag}, commit_timestamp=at, position_timestamp=at, **more)
    return script


def examined(script: Script, live: LiveGroups = NOT_QUERIED, end_s: float = END_S) -> Examination:
    held = read_tables(tables(script))
    (found,) = examine_all(held, last_ms=START_MS + round(1000 * end_s), live=live)
    return found


def verdict_on(script: Script, live: LiveGroups = NOT_QUERIED) -> Verdict:
    (found,) = verdicts(read_tables(tables(script)), last_ms=START_MS + 1000 * END_S, live=live)
    return found


def now(script: Script, live: LiveGroups, end_s: float = END_S) -> Finding | None:
    found = examined(script, live, end_s).findings
    return next((f for f in found if f.code == "HF128"), None)


def joining(
    members: Iterable[str | SeenMember] = (*ABC, "d-1"), for_s: float = 20, state: str = JOINING
) -> LiveGroups:
    """A group that was seen so twice, and Stable ten seconds before that."""
    one = seen("g", state, members)
    before = (END_S - for_s - 10, [seen("g", "Stable", ABC)])
    return answers(before, (END_S - for_s, [one]), (END_S, [one]))


def test_without_a_coordinators_answer_there_is_no_finding_and_no_heading() -> None:
    assert now(group(), NOT_QUERIED) is None
    assert verdict_on(group()).heading["now"] is None
    assert now(group(), answers((END_S, [seen("g", "Stable", ABC)]))) is None


def test_a_group_that_prepares_a_rebalance_is_never_stable_and_nothing_found() -> None:
    for state in (JOINING, SYNCING):
        found = now(group(), answers((END_S, [seen("g", state, ABC)])))
        assert found is not None and found.is_active and found.basis is Basis.STATED
        assert state in found.text
    verdict = verdict_on(group(), joining())
    assert (verdict.heading["state"], verdict.heading["now"]["state"]) == ("Stable", JOINING)


@pytest.mark.parametrize(
    ("for_s", "severity", "said"),
    [
        (0, Severity.INFO, "rebalancing for at most 10 s"),
        (2, Severity.WARN, "rebalancing for 2.0 s to 12 s"),
        (20, Severity.ERROR, "rebalancing for 20 s to 30 s"),
        (1_000, Severity.ERROR, "rebalancing for 17 min"),  # 1,010 s at most
    ],
)
def test_for_how_long_is_bounded_by_the_answers(
    for_s: float, severity: Severity, said: str
) -> None:
    script = group()
    for row in script.rows["members"]:
        row["rebalance_timeout_ms"] = 3_600_000
    found = now(script, joining(for_s=for_s))
    assert found is not None and found.text.startswith(said), found
    assert found.severity is severity
    assert found.evidence.figures["at_least_s"] == for_s
    assert found.evidence.to_ms == START_MS + 1000 * END_S


def test_members_wait_no_longer_than_the_longest_poll_interval() -> None:
    live = answers((END_S - 60, [seen("g", JOINING, ABC)]), (END_S, [seen("g", JOINING, ABC)]))
    found = now(group(), live)
    assert found is not None and found.text.startswith("rebalancing for 60 s to 5 min"), found


def test_a_generation_that_was_settled_meanwhile_ends_a_rebalance() -> None:
    """Two rounds, each caught at an answer, are not one that lasts since the first answer."""
    script = group().settle(END_S - 5, ABC, deal({"t": 3}, ABC))
    found = now(script, joining(for_s=100))
    assert found is not None and found.evidence.figures["at_least_s"] == 5
    assert found.severity is Severity.WARN


def test_the_only_member_of_the_last_generation_is_the_one_that_is_waited_for() -> None:
    found = now(group(), joining(["d-1", "e-1", "b-1"]))
    assert found is not None
    assert "the coordinator waits for b on /host-b to join again; 2 new members wait" in found.text
    assert found.evidence.members.shown == ("b-1",)


def test_a_member_without_client_id_and_host_is_shown_by_its_id() -> None:
    bare = member("b-1", client_id="", client_host="")
    found = now(group(), joining(["d-1", "e-1", bare]))
    assert found is not None and "waits for b-1 to join again" in found.text


def test_the_member_that_fell_silent_before_all_others_is_most_likely_waited_for() -> None:
    found = now(group({"a-1": 20, "b-1": 95, "c-1": 21}), joining())
    assert found is not None
    assert (
        "waits for b on /host-b to join again, most likely: it has not committed for 95 s, all"
        in (found.text)
    )
    assert "others committed 74 s later" in found.text
    assert found.evidence.members.shown == ("b-1",)


def test_a_member_that_never_committed_is_silent_since_it_has_its_partitions() -> None:
    script = group({"a-1": 20, "c-1": 21})
    script.rows["lag"][1] |= {"commit_timestamp": None, "current_offset": None, "lag": None}
    found = now(script, joining())
    assert found is not None and found.evidence.members.shown == ("b-1",)
    assert "it has not committed for 20 min" in found.text


def test_a_member_with_nothing_to_read_is_not_blamed_for_its_silence() -> None:
    script = group({"a-1": 20, "b-1": 95, "c-1": 900})
    script.rows["lag"][2] |= {"lag": 0}
    found = now(script, joining())
    assert found is not None and found.evidence.members.shown == ("b-1",)
    # What c has to read came when nobody read any more.
    script.rows["lag"][2] |= {"lag": 9, "lag_seconds": 12.0, "lag_seconds_basis": "record"}
    found = now(script, joining())
    assert found is not None and found.evidence.members.shown == ("b-1",)


@pytest.mark.parametrize("committed", [{}, {"b-1": 9}])
def test_where_no_member_stands_out_all_that_may_be_waited_for_are_named(
    committed: dict[str, float],
) -> None:
    found = now(group(committed), joining())
    assert found is not None
    assert (
        "one or more of a on /host-a, b on /host-b, c on /host-c to join again: Kafka" in found.text
    )
    assert found.evidence.members.shown == tuple(ABC)


def test_without_members_of_the_last_generation_nobody_is_named() -> None:
    found = now(group(), joining(["x-1", "y-1"]))
    assert found is not None and "group.initial.rebalance.delay.ms" in found.text
    assert not found.evidence.members.total


def test_a_static_name_stands_for_a_member_and_all_names_are_visible() -> None:
    odd = member("b-1", host="/10.0.0.9\x1b[31m", instance_id="pod-2")
    found = now(group(), joining([odd, "d-1"]))
    assert found is not None and "waits for pod-2 on /10.0.0.9\\u001b[31m to join" in found.text


def test_a_round_that_lacks_its_assignment_waits_for_the_leader() -> None:
    found = now(group(), joining(state=SYNCING))
    assert found is not None and "the assignment of a on /host-a, if it still leads" in found.text
    found = now(group(), joining(["b-1", "c-1"], state=SYNCING))
    assert found is not None and "the assignment of its leader, which is new" in found.text


def test_coordinators_of_kip_848_say_who_has_partitions_to_give_up() -> None:
    people = [
        member("a-1", n_pending_revocations=0, is_behind=True),
        member("b-1", n_pending_revocations=2, is_behind=False),
    ]
    one = seen("g", "Reconciling", people, GroupType.CONSUMER)
    found = now(group(), answers((END_S - 60, [one]), (END_S, [one])))
    assert found is not None and found.severity is Severity.WARN  # the others read on
    assert "waits for b on /host-b to revoke 2 partitions" in found.text
    people[1] = member("b-1", n_pending_revocations=0, is_behind=False)
    one = seen("g", "Reconciling", people, GroupType.CONSUMER)
    found = now(group(), answers((END_S, [one])))
    assert found is not None and found.severity is Severity.INFO
    assert "waits for a on /host-a to adopt the new assignment" in found.text


def test_a_group_that_may_not_be_described_still_says_that_it_rebalances() -> None:
    one = seen("g", JOINING, None, refused="GROUP_AUTHORIZATION_FAILED")
    found = now(group(), answers((END_S, [one])))
    assert found is not None and "could not be read (GROUP_AUTHORIZATION_FAILED)" in found.text


@pytest.mark.parametrize(("cooperative", "lower", "upper"), [(False, 60, 90), (True, 0, 30)])
def test_downtime_is_that_of_whoever_reads_nothing_meanwhile(
    cooperative: bool, lower: float, upper: float
) -> None:
    """20 s to 30 s: of three partitions of an eager group, of one of a cooperative one."""
    script = group({"a-1": 20, "b-1": 95, "c-1": 21}, cooperative=cooperative)
    found = now(script, joining())
    assert found is not None
    assert (found.cost_lower_s, found.cost_upper_s) == (lower, upper)


def test_the_state_of_now_counts_for_what_holds_now() -> None:
    for state, found in (("Empty", {"HF115"}), ("Stable", set())):
        script, live = emptied(900), answers((END_S, [seen("g", state, ["a-1"])]))
        assert {f.code for f in examined(script, live).findings} == found
    gone = examined(emptied(900), answers((END_S, []), gone=["g"]))
    assert (gone.history.state, gone.history.gone_ms) == ("Dead", START_MS + 1000 * END_S)
    assert not any(f.is_active for f in gone.findings)
    # Not listed, and not known to be gone: the records stand.
    assert examined(emptied(900), answers((END_S, []))).history.state == "Empty"


def test_a_group_that_was_deleted_by_its_records_and_is_back_is_not_gone() -> None:
    script = flapping(30).settle(340, [], {}, state="Dead")
    assert examined(script).history.gone_ms == START_MS + 340_000
    live = answers((END_S, [seen("g", "Empty")]))
    assert examined(script, live).history.gone_ms is None


def test_a_group_in_its_first_round_has_no_record_and_is_found_all_the_same() -> None:
    other = quiet()
    live = answers((END_S - 30, [seen("new", JOINING, ABC)]), (END_S, [seen("new", JOINING, ABC)]))
    held = read_tables(tables(other))
    found = examine_all(held, last_ms=START_MS + 1000 * END_S, live=live)
    assert [e.history.name for e in found] == ["new", "g"]
    (finding,) = found[0].findings
    assert (finding.code, finding.severity) == ("HF128", Severity.ERROR)
    assert "rebalancing for at least 30 s" in finding.text
    page = render(held, "t", ["new"], live=live)
    assert "The offsets topic has no record of this group yet." in page


def test_json_says_what_a_coordinator_says_and_follows_the_schema() -> None:
    schema = json.loads((Path(__file__).parents[2] / "docs/doctor.schema.json").read_text())
    many = [member(f"m{i:02d}-1", instance_id=f"i{i}") for i in range(12)]
    cases = [
        joining(many),
        answers((END_S, [seen("g", "Stable", None, refused="NOT_COORDINATOR")])),
        answers((END_S, []), gone=["g"]),
        answers((END_S, [])),
    ]
    told = []
    for live in cases:
        document = json.loads(json.dumps(to_json([verdict_on(group(), live)])))
        assert list(Schema(schema).iter_errors(document)) == []
        told.append(document["groups"][0]["now"])
    assert [(one["state"], one["n_members"], len(one["members"])) for one in told] == [
        (JOINING, 12, 10),
        ("Stable", None, 0),
        ("Dead", None, 0),
        (None, None, 0),
    ]
    assert told[0]["members"][3]["client_host"] == "/host-m03"
    assert told[1]["refused"] == "NOT_COORDINATOR"


def fleet_of_two() -> tuple[Any, LiveGroups]:
    """A calm group and a storm; now the calm one rebalances, and one that has no record."""
    calm, storm = quiet(), flapping(30)
    for rows in storm.rows.values():
        for row in rows:
            row["group"] = "storm"
    one, new = seen("g", JOINING, ["a-1"]), seen("new", SYNCING, ["x-1"])
    live = answers((END_S - 40, [one, new]), (END_S, [one, new, seen("storm", "Stable", [])]))
    return read_tables(tables(calm, storm)), live


def test_an_index_has_the_states_of_now_and_rows_of_groups_without_records() -> None:
    held, live = fleet_of_two()
    before = read_index(held)
    index = index_now(before, live)
    assert index.names == ("g", "new", "storm") and before.names == ("g", "storm")
    assert index.figures.state.tolist() == [JOINING, SYNCING, "Stable"]
    assert index.lags.shape == (3, before.lags.shape[1]) and index.figures.lag[1] == -1
    assert rebalancing_s(index, live) == {"g": 40.0, "new": 40.0}
    assert index_now(before, NOT_QUERIED) is before
    gone = index_now(before, answers((END_S, []), gone=["g"]))
    assert gone.figures.state.tolist() == ["Dead", "Stable"]


def test_verdicts_follow_the_last_answers_and_the_worst_group_stands_first() -> None:
    held, live = fleet_of_two()
    verdicts = {e.history.name: e.verdict for e in examine_all(held, last_ms=START_MS + 400_000)}
    index = index_now(read_index(held), live)
    told = verdicts_now(verdicts, index, live)
    assert [index.names[i] for i in select(index, told, IndexView())] == ["g", "new", "storm"]
    assert [one.code for one in told["g"].codes] == ["HF128"] and told["g"].rank == 2
    calm = answers((END_S + 5, [seen("g", "Stable", ["a-1"])]))
    assert verdicts_now(verdicts, index, calm) is verdicts
    assert verdicts_now(verdicts, index, NOT_QUERIED) is verdicts
    # What was found while it rebalanced is not kept for when it does not.
    (found,) = [e for e in examine_all(held, live=live) if e.history.name == "g"]
    assert [one.code for one in found.verdict.codes] == ["HF128"]
    assert (of_records(found.verdict).codes, of_records(found.verdict).rank) == ((), -1)


class Coordinators:
    """Answers as a test says; notes what was described."""

    def __init__(self, *groups: SeenGroup):
        self.groups = list(groups)
        self.described: list[set[str]] = []
        self.live = NOT_QUERIED
        self.at_ms = 0

    def __call__(self, describe: Any, known: Any) -> LiveGroups:
        self.described.append({one.group for one in self.groups if describe(one)})
        told = {
            one.group: one if describe(one) else seen(one.group, one.state, None)
            for one in self.groups
        }
        self.at_ms = max(self.at_ms + 1, time.time_ns() // 1_000_000)
        self.live = self.live.after(SeenGroups(queried_ms=self.at_ms, groups=told))
        return self.live


def asking(query: Any) -> LiveAnswers:
    return LiveAnswers(query, 5.0, lambda: (), lambda: False)


def test_members_are_queried_where_somebody_looks_or_a_group_rebalances() -> None:
    query = Coordinators(
        seen("a", "Stable", ["m-1"]), seen("b", JOINING, ["m-1"]), seen("c", "Empty")
    )
    found = asking(query)
    found._query_once()
    found.want("c")
    found._query_once()
    assert query.described == [{"b"}, {"b", "c"}]
    assert found.live.of("a").seen.members is None


def test_a_page_is_drawn_anew_where_something_else_is_shown() -> None:
    query = Coordinators(seen("a", "Stable", ["m-1"]))
    found = asking(query)
    marks = []
    for state in ("Stable", "Stable", JOINING, JOINING, "Stable", "Stable"):
        query.groups = [seen("a", state, ["m-1"])]
        found._query_once()
        marks.append(found.mark)
    assert marks == ["-1", "-1", "-2", "-3", "-4", "-4"]  # seconds grow while it rebalances


def test_answers_of_long_ago_say_nothing_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asking(Coordinators(seen("a", JOINING, ["m-1"])))
    found._query_once()
    assert found.live.names == ("a",) and not found.mark.endswith("old")
    monkeypatch.setattr("holdfast.fleet.report.serving.live.OLD_S", -1)
    assert found.live is NOT_QUERIED and found.mark.endswith("old")
    nobody = asking(None)
    nobody.start()
    assert (nobody.live, nobody.mark) == (NOT_QUERIED, "")


def test_served_pages_show_what_groups_do_now(tmp_path: Path) -> None:
    script = quiet().lag({("t", p): 5 for p in range(4)})
    folder = write_tables(tables(script), tmp_path)
    people = [member("a-1", host="/10.0.0.7"), member("b-1", host="/10.0.0.8"), "new-1"]
    query = Coordinators(seen("g", "Stable", people))
    fleet = ServedFleet(folder, print, servers="k:9092", query_now=query, every_s=0.05)
    fleet.start()
    try:
        client = Client(ServedPages(fleet, is_local=True))
        assert fleet.wait(lambda state: state.n_examined == 1, 60)
        fleet._answers._query_once()
        index = client.get("/", headers=LOCAL).text
        assert "Stable" in index and "states of " in index and "HF128<" not in index
        page = client.get("/group?name=g", headers=LOCAL).text
        assert "By its last record in the offsets topic" in page
        query.groups = [seen("g", JOINING, people), seen("fresh", JOINING, ["x-1"])]
        for _ in range(2):
            fleet._answers._query_once()
        index = client.get("/", headers=LOCAL).text
        words = index.split("What the codes mean")[0]
        assert "rebalancing for 0" in words and "HF128" in words and JOINING in words
        assert "/group?name=fresh" in words
        page = client.get("/group?name=g", headers=LOCAL).text
        assert "/10.0.0.8" in page and "waited for" in page
        for more in ("", "&from=5m", "&to=5m"):
            assert client.get(f"/group?name=fresh{more}", headers=LOCAL).status_code == 200
        assert client.get("/group?name=nobody", headers=LOCAL).status_code == 404
        versions = set()
        for _ in range(2):
            fleet._answers._query_once()
            versions.add(client.get("/state", headers=LOCAL).json["version"])
        assert len(versions) == 2
    finally:
        fleet.close()


def test_tables_without_a_cluster_have_no_state_of_now(tmp_path: Path) -> None:
    with following(write_tables(tables(quiet()), tmp_path)) as fleet:
        client = Client(ServedPages(fleet, is_local=True))
        for path in ("/", "/group?name=g"):
            assert "states of " not in client.get(path, headers=LOCAL).text
