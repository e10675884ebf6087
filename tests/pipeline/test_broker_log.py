"""Causes as a broker's log states them: on a real broker's history and log, and line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.running import run
from tests.pipeline import fleet, kinds, local
from tests.pipeline.histories import generation, read_statements
from tests.pipeline.local import everything, rows

from holdfast.fleet.pipeline.history.broker_log import (
    CONTRADICTED,
    MORE_SPECIFIC,
    reason_of,
    restated,
    together,
)
from holdfast.fleet.pipeline.history.broker_texts import Statement, Word, statements_of
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.columns.schemas import arrow_schema

IDLE = ("is_idle", "idle_lower_seconds", "idle_upper_seconds")
CAPTURED = Path(__file__).with_name("captured")
LOG = CAPTURED / "broker.log"
TOLD = json.loads((CAPTURED / "truth.json").read_text())
"""What the members of the captured groups were told to do."""
FOLLOW_UPS = ("cooperative_follow_up", "scheduled_rebalance", "spurious", "rejoin")
PREFIX = (
    "[2026-11-21 15:30:51,021] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=1]"
)
UNTOLD = {("next", "n0"), ("next", "n1"), ("etl", "a")}
"""Members that left, and neither a commit nor a record says so."""
MANAGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"


@pytest.fixture(scope="module")
def stated(tmp_path_factory):
    """Tables of the captured history with the captured log."""
    return local.run(CAPTURED / "dump", tmp_path_factory.mktemp("stated"), logs=[LOG])


@pytest.fixture(scope="module")
def inferred(tmp_path_factory):
    return local.run(CAPTURED / "dump", tmp_path_factory.mktemp("inferred"))


def causes(tables):
    """Causes of each group's rebalances: without the state before the first member came, and
    without the rounds that members of cooperative groups begin by themselves."""
    found = {}
    for row in tables.table("rebalances").to_pylist():
        if row["previous_generation"] is None and row["n_members"] == 0:
            continue
        cause = "join" if row["cause"] == "first_seen" else row["cause"]
        if cause not in FOLLOW_UPS or not row["cooperative"]:
            found.setdefault(row["group"], []).append(cause)
    return found


def truth(steps, *, log):
    """What the members were told to do, in the words of a cause."""
    found, gone = {}, set()
    for step in steps:
        who = step["group"], step["client"]
        cause = step["what"]
        # A static member that closes says nothing: its place is kept until its session ends.
        if cause == "crash" or (cause, step["group"]) == ("leave", "static"):
            cause = "session_timeout" if log else "leave_or_timeout"
        if not log and cause == "leave" and who in UNTOLD:
            cause = "leave_or_timeout"
        if cause == "join" and who in gone:
            cause = "restart"
        if step["what"] in ("crash", "leave"):
            gone.add(who)
        found.setdefault(step["group"], []).append(cause)
    return found


def test_what_is_inferred_of_a_real_history_is_what_was_done(inferred):
    """Who left is told by a commit or by the record before it; of who was killed, neither tells."""
    assert causes(inferred) == truth(TOLD, log=False)


def test_a_real_log_says_what_was_done(stated):
    assert causes(stated) == truth(TOLD, log=True)


def test_what_is_stated_is_certain_and_in_the_brokers_words(stated, inferred):
    before = inferred.table("rebalances").to_pylist()
    for was, row in zip(before, stated.table("rebalances").to_pylist(), strict=True):
        assert (was["cause_basis"], was["stated_reason"]) == ("inferred", None)
        if row["cause_basis"] == "stated":
            assert row["confidence"] == 1 and row["stated_reason"]
        else:
            assert (row["cause"], row["confidence"]) == (was["cause"], was["confidence"])
        same = {k: v for k, v in was.items() if not k.startswith(("cause", "conf", "stated"))}
        assert same.items() <= row.items()
    said = [row["stated_reason"] for row in stated.table("rebalances").to_pylist()]
    assert sum(text is not None for text in said) >= len(said) - 5
    assert any("on heartbeat expiration" in text for text in said if text)


@pytest.mark.parametrize("shares", [(0.5,), (0.2, 0.35, 0.8)])
def test_a_stream_takes_the_same_from_a_log(stated, tmp_path, shares):
    dump = CAPTURED / "dump"
    at = local.records_of(Dump.open(dump))["timestamp"].cast(pa.int64()).sort().to_pylist()
    cuts = [at[int(len(at) * share)] for share in shares]
    streamed = local.stream(dump, tmp_path, cuts, logs=[LOG])
    # A batch reads log ends while a group is there. Of one that is empty in the end, a single run
    # reads none, so it cannot tell which of its pauses were idle, and what they cost.
    assert_equal_but_idle(streamed, stated)


def assert_equal_but_idle(left, right):
    """Rows are equal but for idle times, and findings of groups whose idle times are equal."""
    found = [everything(tables, but=IDLE) for tables in (left, right)]
    one, other = ({*rows(tables, "rebalances", "group", *IDLE[1:])} for tables in (left, right))
    differ = {group for group, *_ in one ^ other}
    for tables, of in zip((left, right), found, strict=True):
        findings = tables.table("findings").to_pylist()
        of["findings"] = [row for row in findings if row["group"] not in differ]
        assert of["findings"]
    assert found[0] == found[1]


def test_a_stream_leaves_what_a_log_says_twice(tmp_path):
    """The group was made anew: which of its lives is meant, a batch cannot tell."""
    history = [
        generation("g", 1, {"m": {"t": [0]}}, at=100),
        generation("g", -1, {}, at=101, state="Dead"),
        generation("g", 1, {"m": {"t": [0]}}, at=102),
        generation("g", 2, {"m": {"t": [0]}}, at=103),
    ]
    dump = fleet.write_dump(tmp_path / "dump", fleet.classics(history))
    log = tmp_path / "server.log"
    reasons = [
        (0, "Adding new member a with group instance id None"),
        (0, "Adding new member b with group instance id None"),
        (1, "removing member c on LeaveGroup"),
    ]
    log.write_text("".join(preparing("g", *reason) for reason in reasons))
    for made, lives in (
        (local.run(dump, tmp_path / "run", logs=[log]), [reasons[0][1], reasons[1][1]]),
        (local.stream(dump, tmp_path / "stream", [102_000_000], logs=[log]), [None, None]),
    ):
        found = rows(made, "rebalances", "stated_reason")
        assert [text for (text,) in found] == [*lives, "removing member c on LeaveGroup"]


def cause_of(said):
    return together({word.cause for word in said.words})


def line(message):
    return f"{PREFIX} {message} {MANAGER}\n"


def preparing(group, generation, reason):
    return line(
        f"Preparing to rebalance group {group} in state PreparingRebalance with old generation "
        f"{generation} (reason: {reason})."
    )


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Adding new member m with group instance id null; client reason: not provided", "join"),
        ("removing member m on heartbeat expiration.", "session_timeout"),
        ("Removing member m on LeaveGroup; client reason: the consumer is being closed", "leave"),
        ("explicit `LeaveGroup` request for (m, n) members.", "leave"),
        ("Updating metadata for member m during Stable; client reason: x", "rejoin"),
        ("Leader m re-joining group during Stable; client reason: Adding new member", "rejoin"),
        ("Moon is full", None),
        ("Moon is full; client reason: on heartbeat expiration", None),
    ],
)
def test_reasons(reason, cause):
    (said,) = read_statements([preparing("g", 6, reason)], ["g"])
    assert (said.group, said.generation, said.classic) == ("g", 7, True)
    assert (cause_of(said), reason_of(said.words)) == (cause, reason)


def test_the_line_of_an_older_broker():
    old = (
        "[2021-01-01 00:00:00,000] INFO [GroupCoordinator 3]: Preparing to rebalance group g in "
        "state PreparingRebalance with old generation 41 (__consumer_offsets-7) (reason: Adding "
        "new member c-1 with group instance id None) (kafka.coordinator.group.GroupCoordinator)\n"
    )
    (said,) = read_statements([old], ["g"])
    assert (said.generation, cause_of(said)) == (42, "join")
    assert reason_of(said.words).endswith("instance id None")


@pytest.mark.parametrize(
    "name",
    ["x in state Stable with old generation 7 (reason: y)", "a] Bumped", "", "[GroupId g] ", "😀"],
)
def test_a_name_that_looks_like_a_line_is_a_name(name):
    classic = preparing(name, 3, "Adding new member m with group instance id null")
    modern = line(f"[GroupId {name}] Member m left the consumer group.")
    bump = line(f"[GroupId {name}] Bumped group epoch to 9 with metadata hash 1.")
    said = read_statements([classic, modern, bump], [name, "x", "g", "a"])
    assert [(s.group, s.generation, cause_of(s)) for s in said] == [
        (name, 4, "join"),
        (name, 9, "leave"),
    ]


class Copied(str):
    """Text that counts the characters of every part taken out of it."""

    __slots__ = ()
    characters = 0

    def __getitem__(self, part):
        taken = Copied(super().__getitem__(part))
        Copied.characters += len(taken)
        return taken


@pytest.mark.parametrize("known", [["g"], ["] " * 16_000]])
def test_a_name_full_of_what_ends_a_name_is_read_in_proportion_to_its_length(known):
    state = " in state Stable with old generation 7 (reason: "
    for text in (
        f"[GroupId {'] ' * 16_000}] Member m left the consumer group.",
        f"Preparing to rebalance group {state * 600} in state Stable with old generation 3",
        f"Member m in group {'] ' * 16_000} has failed, removing it from the group",
    ):
        Copied.characters = 0
        statements_of([Copied(text)], known)
        assert Copied.characters <= 4 * len(text)


def test_a_client_cannot_speak_for_another_group():
    fake = "ok). in state Stable with old generation 1 (reason: explicit `LeaveGroup`"
    lines = [
        preparing("g", 3, f"Adding new member m with group instance id null; client reason: {fake}")
    ]
    assert [(s.group, cause_of(s)) for s in read_statements(lines, ["g", "h"])] == [("g", "join")]
    lines = [preparing("unknown", 3, "x"), "", "Preparing to rebalance group g"]
    assert read_statements(lines, []) == []


def rebalance(group, generation, cause, *, kind="classic", before=None, **more):
    row = dict.fromkeys(arrow_schema("rebalances").names)
    row |= {"group": group, "generation": generation, "previous_generation": before}
    row |= {"n_joined": 0, "n_left": 0, "n_missed_generations": 0} | more
    return row | {
        "group_type": kind,
        "cause": cause,
        "confidence": 0.5,
        "cause_basis": "inferred",
    }


def restate(rows, statements):
    """(cause, basis, stated reason) of each rebalance, and rows of anomalies."""
    table = pa.Table.from_pylist(rows, schema=arrow_schema("rebalances"))
    names = ("cause", "cause_basis", "stated_reason")
    found, anomalies = restated(table, statements)
    return [tuple(r[n] for n in names) for r in found.to_pylist()], anomalies.to_pylist()


def said(generation, cause, reason="r", group="g", *, classic=True):
    words = (Word(cause=cause, text=reason),)
    return Statement(group=group, generation=generation, words=words, classic=classic)


def test_a_cause_that_says_more_stays():
    for stated_as, kept in MORE_SPECIFIC.items():
        for cause in kept:
            row = rebalance("g", 2, cause)
            assert restate([row], [said(2, stated_as)])[0] == [(cause, "inferred", "r")]
    found, _ = restate([rebalance("g", 2, "spurious")], [said(2, None)])
    assert found == [("spurious", "inferred", "r")]


def test_generations_that_are_counted_again_take_their_own_statements():
    rows = [rebalance("g", 2, "spurious"), rebalance("g", 2, "spurious")]
    assert restate(rows, [said(2, "leave", "old"), said(2, "join", "new")])[0] == [
        ("leave", "stated", "old"),
        ("join", "stated", "new"),
    ]
    (first, _), _ = restate(rows, [said(2, "join", "new")])
    assert first == ("spurious", "inferred", None)


def test_a_target_has_the_reasons_of_all_epochs_since_the_one_before():
    row = rebalance("g", 9, "spurious", kind="consumer", before=6, n_joined=1, n_left=1)
    reasons = [(6, "leave", "a"), (7, "join", "b"), (9, "leave", "c")]
    statements = [said(*reason, classic=False) for reason in reasons]
    assert restate([row], statements)[0] == [("join_and_leave", "stated", "b; c")]


@pytest.mark.parametrize("command", ["history", "doctor", "report", "watch"])
def test_a_command_refuses_a_log_that_is_not_there(tmp_path, command):
    where = ["--input", CAPTURED / "dump"]
    if command == "watch":
        where = ["-b", "127.0.0.1:1", "-o", tmp_path / "out"]
    done = run(command, *where, "--broker-log", tmp_path / "no.log")
    assert done.code == 3 and "no.log" in done.err and done.out == ""


def test_causes_of_tables_are_settled(stated):
    done = run("doctor", "--input", stated.root, "--broker-log", LOG)
    assert done.code == 2 and "holdfast history" in done.err


def contradicted(row, *words):
    """Cause, basis and what the anomaly says, for what a log states about one rebalance."""
    words = tuple(Word(cause=w, text="r") if isinstance(w, str) else w for w in words)
    one = Statement(group="g", generation=2, words=words)
    ((cause, basis, reason),), rows = restate([row], [one])
    assert reason
    assert all((r["group"], r["generation"], r["kind"]) == ("g", 2, CONTRADICTED) for r in rows)
    return cause, basis, [r["detail"].partition(", but ")[2] for r in rows]


@pytest.mark.parametrize(
    ("causes", "members", "wrong"),
    [
        (("join",), (0, 1), "1 left and no member joined"),
        (("leave",), (1, 0), "1 joined and no member left"),
        (("session_timeout",), (0, 0), "no member left"),
        (("join", "leave"), (0, 1), "no member joined"),
        (("leave",), (1, 1), "1 joined"),
        (("rejoin",), (0, 2), "2 left"),
    ],
)
def test_a_cause_that_the_members_contradict_is_not_stated(causes, members, wrong):
    row = rebalance("g", 2, "spurious", before=1, n_joined=members[0], n_left=members[1])
    assert contradicted(row, *causes) == ("spurious", "inferred", [wrong])


@pytest.mark.parametrize(
    ("causes", "members", "cause"),
    [
        (("join", "leave"), (1, 1), "join_and_leave"),
        (("join", "leave"), (0, 0), "join_and_leave"),  # one came and went, or a static one is back
        (("rejoin", "session_timeout"), (0, 1), "session_timeout"),
        (("rebalance_timeout", "rejoin"), (0, 1), "rebalance_timeout"),
        (("leave", "session_timeout"), (0, 2), "leave_and_timeout"),
        (("sync_timeout",), (0, 0), "sync_timeout"),  # of members that no record has shown
        (("restart",), (0, 0), "restart"),
    ],
)
def test_a_cause_that_the_members_bear_out_is_stated(causes, members, cause):
    row = rebalance("g", 2, "spurious", before=1, n_joined=members[0], n_left=members[1])
    assert contradicted(row, *causes) == (cause, "stated", [])


def test_members_that_no_record_shows_are_no_contradiction():
    row = rebalance("g", 2, "spurious", before=0, n_missed_generations=1)
    assert contradicted(row, "leave") == ("leave", "stated", [])
    row = rebalance("g", 2, "first_seen")
    assert contradicted(row, "leave") == ("leave", "stated", [])


def test_a_member_who_came_and_went_again_is_nobody_who_came():
    row = rebalance("g", 2, "leave", before=1, n_left=1)
    words = (("join", "a"), ("leave", "a"), ("leave", "b"))
    made = [Word(cause=cause, text=cause, member=member) for cause, member in words]
    assert contradicted(row, *made) == ("join_and_leave", "stated", [])


def test_a_join_that_may_be_a_rejoin_is_one_where_nobody_came():
    """The log begins after the member came, which uses the classic protocol in a KIP-848 group."""
    row = rebalance("g", 2, "leave", before=1, n_left=1)
    made = (Word(cause="leave", text="l"), Word(cause="join", text="j", certain=False))
    assert contradicted(row, *made) == ("leave", "stated", [])
    row["n_joined"] = 1
    assert contradicted(row, *made)[0] == "join_and_leave"


def test_a_rebalance_has_the_reasons_of_generations_that_were_interrupted():
    """Generation 2 left no record: who came in it is why generation 3 has one member more."""
    row = rebalance("g", 3, "join", before=1, n_joined=1, n_missed_generations=1)
    reasons = [said(2, "join", "new"), said(3, "rejoin", "leader")]
    assert restate([row], reasons)[0] == [("join", "stated", "new; leader")]


def test_the_anomaly_stands_in_the_tables(tmp_path):
    history = [
        generation("g", 1, {"a": {"t": [0]}, "b": {"t": [1]}}, at=100),
        generation("g", 2, {"a": {"t": [0, 1]}}, at=103),
    ]
    records = fleet.classics(history)
    dump = fleet.write_dump(tmp_path / "dump", records)
    log = tmp_path / "server.log"
    log.write_text(preparing("g", 1, "Adding new member c with group instance id null"))
    made = local.run(dump, tmp_path / "run", logs=[log])
    (row,) = made.table("anomalies").to_pylist()
    assert (row["kind"], row["generation"], row["member_ids"]) == (CONTRADICTED, 2, ["c"])
    assert row["detail"] == "the log states 'join', but 1 left and no member joined"
    *_, last = made.table("rebalances").to_pylist()
    assert last["cause_basis"] == "inferred" and last["stated_reason"].startswith("Adding new")


def test_a_client_id_cannot_speak_for_another_group():
    words = "[GroupId h] Member m left the consumer group."
    lines = [
        line(
            f"Pending dynamic member with id {words} joins group g in Stable state. Adding to the "
            "group now."
        ),
        line("[GroupId h] Bumped group epoch to 9 with metadata hash 1."),
        preparing("g", 3, "Moon is full"),
    ]
    found = [(one.group, cause_of(one)) for one in read_statements(lines, ["g", "h"])]
    assert found == [("h", None), ("g", "join")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("share", {6: "leave", 7: "session_timeout"}),
        ("streams", {5: "session_timeout", 6: "join", 7: "leave"}),
        ("migrated", {4: "join", 5: "leave", 7: "session_timeout", 8: "protocol_change"}),
        ("streams_classic", {5: "scheduled_rebalance", 7: "session_timeout", 8: "leave"}),
        ("connect", {8: "join", 10: "session_timeout", 11: "scheduled_rebalance"}),
    ],
)
def test_real_logs_of_every_kind_of_group(tmp_path, name, expected):
    """What was done to the captured groups stands in their ``moments``; the last row counts where a
    group was converted under one number."""
    captured = kinds.kind(name)
    log = tmp_path / "server.log"
    log.write_text("\n".join(captured.broker_log))
    made = local.run(captured.write_dump(tmp_path / "dump"), tmp_path / "out", logs=[log])
    causes = {r["generation"]: r["cause"] for r in made.table("rebalances").to_pylist()
              if r["group"] == captured.group}  # fmt: skip
    assert expected.items() <= causes.items()
    assert CONTRADICTED not in made.table("anomalies")["kind"].to_pylist()
