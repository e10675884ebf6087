"""Each text that a broker logs about groups: as Kafka's classes have it, and what it states."""

from __future__ import annotations

import itertools
import re
from functools import partial

import pytest
from tests.pipeline.class_files import classes, constants, logged
from tests.pipeline.other_broker_texts import NOTHING, PREPARING, REASONS
from tests.pipeline.test_broker_log import cause_of, line
from tests.pipeline.test_broker_log import preparing as of_reason

from holdfast.fleet.pipeline.history.broker_log import DEPARTURES, read_statements, together
from holdfast.fleet.pipeline.history.broker_texts import (
    BUMPS,
    CLASSIC_TEXTS,
    COMPUTED,
    ENDS,
    FENCED,
    LOADED,
    MODERN_TEXTS,
    NEXT_REQUEST,
    Waits,
)
from holdfast.jvm.jars import broker_jars

KNOWN = (*CLASSIC_TEXTS, *MODERN_TEXTS, *BUMPS, COMPUTED, *ENDS, *LOADED, *NEXT_REQUEST)
SPEAKS = re.compile(r"group|member|epoch|rebalance", re.IGNORECASE)
OF_A_REASON = re.compile("client reason: \1|LeaveGroup` request for|expiration|over cap|Downgrade")
NOT_A_REASON = re.compile("notification|has been removed")
VALUES = {"g": "etl", "m": "m-1", "n": "7", "s": "Stable", "p": "consumer", ".": "x"}


@pytest.fixture(scope="module")
def kafka():
    """Classes of Kafka's group coordinator that log."""
    (jar,) = (jar for jar in broker_jars() if jar.name.startswith("kafka-group-coordinator-4"))
    return classes(jar)


@pytest.mark.broker
def test_every_text_of_the_tables_is_one_of_kafkas_constants(kafka):
    ours = {text.text for text in KNOWN} | NOTHING | {PREPARING}
    ours |= {text for text, _ in REASONS} | {text for text, _ in FENCED}
    assert ours <= constants(kafka), sorted(ours - constants(kafka))


@pytest.mark.broker
def test_every_text_that_kafka_logs_about_groups_is_in_a_table(kafka):
    at_info = {text for level, text in logged(kafka) if level == "info"}
    spoken = {text for text in at_info if SPEAKS.search(text) and "{}" in text}
    ours = {text.text for text in KNOWN} | NOTHING | {PREPARING}
    assert len(spoken) > 60
    assert spoken <= ours, sorted(spoken - ours)
    ours_at_info = {text for text in ours if "{}" in text}
    assert ours_at_info <= at_info, sorted(ours_at_info - at_info)


@pytest.mark.broker
def test_every_reason_of_a_rebalance_is_in_the_table(kafka):
    reasons = {text for text in constants(kafka) if OF_A_REASON.search(text) and "{}" not in text}
    reasons = {text for text in reasons if not NOT_A_REASON.search(text)}
    assert reasons == {text for text, _ in REASONS}


def written(text):
    """A text with values in it."""
    literals = text.text.split("{}")
    values = [VALUES[kind] for kind in text.fields]
    return line("".join(itertools.chain(*zip(literals, [*values, ""], strict=True))))


def plain(text):
    """A text of no table, every value the group's name."""
    return line(text.replace("{}", "etl"))


preparing = partial(of_reason, "etl")


def bumped(epoch):
    return line(f"[GroupId etl] Bumped group epoch to {epoch} with metadata hash 1.")


def said(*lines):
    found = read_statements(lines, ["etl", "x"])
    return [(one.generation, cause_of(one)) for one in found]


MOON = "Moon is full"


@pytest.mark.parametrize("text", CLASSIC_TEXTS, ids=lambda text: text.text)
def test_a_text_about_a_classic_group(text):
    expected = text.cause if text.waits is Waits.SURE else None
    assert said(preparing(6, MOON), written(text)) == [(7, expected)]
    assert said(written(text), preparing(6, MOON)) == [(7, expected)]
    end = line("Stabilized group etl generation 7 with 2 members.")
    again = [(7, None), (8, expected)]
    assert said(preparing(6, MOON), end, written(text), preparing(7, MOON)) == again


@pytest.mark.parametrize("text", MODERN_TEXTS, ids=lambda text: text.text)
def test_a_text_about_a_group_of_kip_848_and_its_kind(text):
    cause = None if text.waits is Waits.NEVER else text.cause
    assert said(written(text), bumped(7)) == [(7, cause)]
    sure = text.cause if text.waits is Waits.SURE else None
    other = line("[GroupId etl] Member m-2 left the consumer group.")
    assert said(written(text), other, bumped(7)) == [(7, together({sure, "leave"}))]


@pytest.mark.parametrize(("why", "cause"), FENCED)
def test_why_a_member_was_fenced(why, cause):
    fenced = line(f"[GroupId etl] Member m-1 fenced from the group because {why}.")
    assert said(fenced, bumped(7)) == [(7, cause)]


@pytest.mark.parametrize(("reason", "cause"), REASONS)
def test_a_reason_of_a_rebalance(reason, cause):
    assert said(preparing(6, reason.replace("\1", "x").replace("%s", "etl"))) == [(7, cause)]


@pytest.mark.parametrize("text", sorted(NOTHING))
def test_a_text_that_means_nothing_changes_nothing(text):
    """Neither alone, nor between a reason and its epoch, nor in a round."""
    left = line("[GroupId etl] Member m-1 left the consumer group.")
    assert said(plain(text), bumped(7)) == [(7, None)]
    assert said(left, plain(text), bumped(7)) == [(7, "leave")]
    assert said(preparing(6, MOON), plain(text)) == [(7, None)]


@pytest.mark.parametrize("text", [text for text in MODERN_TEXTS if text.silent], ids=str)
def test_who_leaves_a_share_or_streams_group_bumps_its_epoch_unsaid(text):
    end = text.cause in DEPARTURES
    lines = [bumped(7), written(text), written(text), bumped(20)]
    both = [(8, text.cause), (9, text.cause), (20, None)]
    assert said(*lines)[1:] == (both if end else [(20, together({text.cause}))])


def test_what_goes_into_a_target_belongs_to_it():
    """The log begins after the last epoch: the target says which one it was."""
    left = line("[GroupId etl] Member m-1 left the share group.")
    target = line(
        "[GroupId etl] Computed a new target assignment for epoch 9 with 'simple' assignor in 1ms."
    )
    assert said(left, target) == [(9, "leave")]
    joined = line("[GroupId etl] Member m-1 joins the consumer group using the consumer protocol.")
    assert said(bumped(9), joined, target) == [(9, "join")]


def test_a_coordinator_that_takes_over_knows_nothing_of_what_waited():
    left = line("[GroupId etl] Member m-1 left the consumer group.")
    for text in LOADED:
        assert said(left, written(text), bumped(7)) == [(7, None)]


@pytest.mark.parametrize("text", NEXT_REQUEST, ids=lambda text: text.text)
def test_what_led_to_nothing_in_its_own_request_leads_to_nothing(text):
    back = line(
        "[GroupId etl] Static member with instance id i re-joins the consumer group using the "
        "consumer protocol. Created a new member m-2 to replace the existing member m-1."
    )
    assert said(back, bumped(7)) == [(7, "restart")]
    assert said(back, written(text), bumped(7)) == [(7, None)]


def test_a_member_that_is_there_joins_again_for_nothing():
    """A classic member of a KIP-848 group joins whenever it reconciles: no new member."""
    first, again = (
        line(f"[GroupId etl] Member m-{n} joins the consumer group using the classic protocol.")
        for n in (1, 1)
    )
    left = line(
        "[GroupId etl] Dynamic member m-2 has left group through explicit `LeaveGroup` request; "
        "client reason: not provided"
    )
    lines = (first, bumped(7), left, bumped(8), again, first, left, bumped(9))
    assert said(*lines) == [(7, "join"), (8, "leave"), (9, "leave")]


def test_a_static_member_away_for_a_while_is_not_why_another_one_is_fenced():
    away = line(
        "[GroupId etl] Static member m-1 with instance id i temporarily left the consumer group."
    )
    back = line(
        "[GroupId etl] Static member with instance id i re-joins the consumer group using the "
        "consumer protocol. Created a new member m-3 to replace the existing member m-1."
    )
    gone = line(
        "[GroupId etl] Member m-2 fenced from the group because the member session expired."
    )
    assert said(away, back, gone, bumped(7)) == [(7, "session_timeout")]


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
