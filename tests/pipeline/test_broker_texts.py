"""Each text that says why a group rebalances: as Kafka's classes have it, and what it states."""

from __future__ import annotations

import re
from functools import partial

import pytest
from tests.live.versions import versions
from tests.pipeline.class_files import classes, constants, logged
from tests.pipeline.histories import read_statements
from tests.pipeline.test_broker_log import cause_of, line
from tests.pipeline.test_broker_log import preparing as of_reason

from holdfast.fleet.analysis.group.client_library import says_poll_timeout
from holdfast.fleet.pipeline.history.broker_log import reason_of, together
from holdfast.fleet.pipeline.history.broker_texts import (
    DEPARTURES,
    MEMBERS,
    NUMBERS,
    REASONS,
    rows_of,
)
from holdfast.local.jars import KAFKA_VERSION, broker_jars

LETTER = re.compile(r"\{\w?\}")
SEAM = re.compile(r"\{\w?\}|(?<=, while )")
"""Where a constant of Kafka's classes may end: at a value, and where Scala adds two strings."""
VALUES = {"g": "etl", "m": "m-1", "n": "7", "p": "consumer", "": "x"}
VALUES |= {"r": "the member session expired"}
SPEAKS = re.compile(
    r"\bmember\b.*\b(joins|left|removed|updated|initialized|changed)|fenced|epoch to|rebalanc",
    re.IGNORECASE,
)
STATES_NOTHING = (
    "requesting the member to rejoin with this id",  # an id is handed out
    "Pending member",  # one that was none goes
    "is fenced by existing member",  # one is refused
    "failed to join before the rebalance timeout",  # the members that went have a line of their own
    "is dead, skipping rebalance stage",
    "will not trigger a rebalance",
    "updated its",  # the records show these changes, which may lead to no rebalance
    "initialized the topology",
    "configurations changed",
    "new assignment state",
    "re-joins the consumer group",
    "with unknown member id rejoins",
    "Replacing previously mapped member",
)


def shown(version: str, having: str) -> str:
    """Classes of a version's group coordinators that have a word in them."""
    names = ("kafka-group-coordinator-", "kafka_2.13-")
    jars = [jar for jar in broker_jars(version) if jar.name.startswith(names)]
    return "".join(classes(jar, "coordinator/group", having) for jar in jars)


def said_by(text: str) -> re.Pattern[str]:
    """A text of a table, as it is found among Kafka's."""
    return re.compile(".*?".join(map(re.escape, LETTER.split(text))) + r"\.?\Z", re.IGNORECASE)


@pytest.mark.broker
def test_every_text_by_which_kafka_says_that_members_come_or_go_is_in_the_table():
    known = [said_by(text) for table in (MEMBERS, NUMBERS) for _, text in rows_of(table)]
    at_info = {t for level, t in logged(shown(KAFKA_VERSION, "slf4j/Logger")) if level == "info"}
    spoken = [text.replace("[GroupId ", "[Group ") for text in at_info if SPEAKS.search(text)]
    spoken = [text for text in spoken if not any(part in text for part in STATES_NOTHING)]
    assert len(spoken) > 15
    assert [text for text in spoken if not any(one.match(text) for one in known)] == []


@pytest.mark.broker
@pytest.mark.slow
def test_every_text_of_the_table_is_in_the_classes_of_a_version():
    """Scala's texts are in pieces, so each piece is looked for."""
    there = {text for version in versions() for text in constants(shown(version, "rebalance"))}
    everything = "\n".join(there).lower()
    for table in (MEMBERS, NUMBERS, REASONS):
        for _, text in rows_of(table):
            shorter = text.replace("MemberMetadata(memberId={m}, groupInstanceId={})", "{m}")
            pieces = SEAM.split(shorter.lower().replace("[group {g}]", ""))
            missing = [one for one in pieces if one.strip(" ;]") not in everything]
            assert not missing, text


def written(text):
    """A text with values in it."""
    return line(re.sub(r"\{(\w?)\}", lambda letter: VALUES[letter[1]], text))


preparing = partial(of_reason, "etl")
"""A line that begins a classic round."""


def bumped(epoch):
    return line(f"[GroupId etl] Bumped group epoch to {epoch} with metadata hash 1.")


def said(*lines):
    found = read_statements(lines, ["etl", "x"])
    return [(one.generation, cause_of(one)) for one in found]


MOON = "Moon is full"
ROWS = rows_of(MEMBERS)
CLASSIC = [row for row in ROWS if not row[1].startswith("[Group {g}]") or "LeaveGroup" in row[1]]
MODERN = [row for row in ROWS if row[1].startswith("[Group {g}]")]


@pytest.mark.parametrize(("mark", "text"), CLASSIC)
def test_a_text_about_a_classic_group(mark, text):
    cause = None if mark == "-" else mark
    end = line("Stabilized group etl generation 7 with 2 members.")
    assert said(written(text), preparing(6, MOON)) == [(7, cause)]
    assert said(preparing(6, MOON), written(text)) == [(7, cause)]
    again = [(7, None), (8, cause)]
    assert said(preparing(6, MOON), end, written(text), preparing(7, MOON)) == again


@pytest.mark.parametrize(("mark", "text"), MODERN)
def test_a_text_about_a_group_of_kip_848_and_its_kind(mark, text):
    cause = None if mark == "-" else mark
    modern = text.replace("[Group {g}]", "[GroupId {g}]")
    assert said(written(modern), bumped(7)) == [(7, cause)]
    other = line("[GroupId etl] Member m-2 left the consumer group.")
    assert said(written(modern), other, bumped(7)) == [(7, together({cause, "leave"}))]


@pytest.mark.parametrize(("cause", "reason"), rows_of(REASONS))
def test_a_reason(cause, reason):
    reason = re.sub(r"\{(\w?)\}", lambda letter: VALUES[letter[1]], reason)
    assert said(preparing(6, reason)) == [(7, cause)]
    assert said(preparing(6, f"{reason}.")) == [(7, cause)]
    assert said(preparing(6, f"{MOON}; client reason: {reason}")) == [(7, None)]
    if cause in DEPARTURES:
        fenced = line(f"[GroupId etl] Member m-1 fenced from the group because {reason}.")
        assert said(fenced, bumped(7)) == [(7, cause)]


def test_a_number_without_a_word_before_it_has_its_own_words():
    (one,) = read_statements([bumped(7)], ["etl"])
    assert one.words[0].text == "Bumped group epoch to 7 with metadata hash 1"


def test_a_log_that_begins_in_a_round_has_the_number_from_its_end():
    failed = line("Member m-1 in group etl has failed, removing it from the group.")
    assert said(failed, line("Group etl with generation 7 is now empty.")) == [
        (7, "session_timeout")
    ]


def test_kafka_3_says_that_a_member_left_once_more_when_the_round_is_over():
    left = (
        "Member MemberMetadata(memberId=m-1, groupInstanceId=None, clientId=m, clientHost=/h, "
        "sessionTimeoutMs=6000, rebalanceTimeoutMs=300000, supportedProtocols=List(range)) has "
        "left group etl through explicit `LeaveGroup`; client reason: not provided"
    )
    first = preparing(6, "Removing member m-1 on LeaveGroup; client reason: not provided")
    empty = line("Group etl with generation 7 is now empty (__consumer_offsets-2)")
    joined = preparing(7, "Adding new member m-2 with group instance id None")
    assert said(first, empty, line(left), joined) == [(7, "leave"), (8, "join")]
    second = left.replace("m-1", "m-3")  # who leaves in the round has no line but that
    assert said(joined, line(second), empty) == [(8, "join_and_leave")]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("consumer poll timeout has expired.", "poll_timeout"),
        ("max.poll.interval.ms passed without a poll", "poll_timeout"),
        ("the consumer is being closed", "leave"),
    ],
)
def test_a_member_says_that_it_leaves_because_no_poll_came(reason, cause):
    """Kafka 3 says it in the reason of the round, Kafka 4 in the line before that."""
    old = preparing(6, f"Removing member m-1 on LeaveGroup; client reason: {reason}")
    left = line(
        "[Group etl] Dynamic member m-1 has left group through explicit `LeaveGroup` request; "
        f"client reason: {reason}"
    )
    new = preparing(6, "explicit `LeaveGroup` request for (m-1) members")
    assert said(old) == said(left, new) == [(7, cause)]
    if cause == "poll_timeout":
        (statement,) = read_statements([left, new], ["etl"])
        assert says_poll_timeout(reason_of(statement.words))
    other = left.replace("m-1", "m-2").replace(reason, "the consumer is being closed")
    both = "leave" if cause == "leave" else "leave_and_timeout"
    assert said(left, other, new) == [(7, both)]


@pytest.mark.parametrize(("mark", "text"), [row for row in MODERN if "share" in row[1]])
def test_who_leaves_a_share_group_bumps_its_epoch_unsaid(mark, text):
    gone = written(text.replace("[Group {g}]", "[GroupId {g}]").replace("{m}", "m-2"))
    lines = [bumped(7), written(text), gone, bumped(20)]
    assert said(*lines)[1:] == [(8, mark), (9, mark), (20, None)]


def test_what_goes_into_a_target_belongs_to_it():
    """The log begins after the last epoch: the target says which one it was."""
    left = line("[GroupId etl] Member m-1 left the share group.")
    target = line(
        "[GroupId etl] Computed a new target assignment for epoch 9 with 'simple' assignor in 1ms."
    )
    assert said(left, target) == [(9, "leave")]
    joined = line("[GroupId etl] Member m-1 joins the consumer group using the consumer protocol.")
    assert said(bumped(9), joined, target) == [(9, "join")]


def test_a_member_that_is_there_joins_again_for_nothing():
    """A classic member of a KIP-848 group joins whenever it reconciles: no new member."""
    joins = line("[GroupId etl] Member m-1 joins the consumer group using the classic protocol.")
    left = "[GroupId etl] Member m-{} left the consumer group."
    lines = (joins, bumped(7), line(left.format(2)), bumped(8), joins, joins)
    assert said(*lines, line(left.format(3)), bumped(9)) == [
        (7, "join"),
        (8, "leave"),
        (9, "leave"),
    ]


def test_a_static_member_away_for_a_while_is_not_why_another_one_is_fenced():
    away = line(
        "[GroupId etl] Static member m-1 with instance id i temporarily left the consumer group."
    )
    gone = line(
        "[GroupId etl] Member m-2 fenced from the group because the member session expired."
    )
    assert said(away, gone, bumped(7)) == [(7, "session_timeout")]


def test_a_group_that_goes_back_to_the_classic_protocol():
    """The record that was converted lacks who left; the round after it is the conversion's."""
    left = line("[GroupId etl] Member m-1 left the consumer group.")
    why = "Downgrade group etl from consumer to classic for member leaving."
    converted = line("[GroupId etl] Converted the consumer group to a classic group.")
    found = read_statements([bumped(7), left, preparing(7, why), converted], ["etl"])
    assert [(one.generation, cause_of(one), one.classic) for one in found] == [
        (7, None, False),
        (7, "leave", True),
        (8, "protocol_change", True),
    ]
