"""Rebalances of stock clients: whom the coordinator waits for, and the causes in its log.

A stock member that works on a batch does not join again while another one joins. Its coordinator
waits for it as long as max.poll.interval.ms allows; meanwhile no record shows the rebalance.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.cli.running import run
from tests.live.crew import Topic, admin_of, fresh, group_of
from tests.live.disturbed import left_by
from tests.live.polled import StockMember
from tests.live.waiting import until

from holdfast.cli.live_groups import GroupStatePoller
from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.snapshot import JOINING
from holdfast.fleet.analysis.findings.finding import Limits

pytestmark = pytest.mark.broker


def n_members(bootstrap: str, group: str, state: str = "STABLE") -> int:
    """Members of a group in a state; -1 in any other one."""
    try:
        told = group_of(bootstrap, group)
    except confluent_kafka.KafkaException:  # its coordinator is not ready yet
        return -1
    return len(told.members) if told.state.name == state else -1


def doctored(bootstrap: str, group: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code of the doctor, and what it says of a group."""
    done = run("doctor", "-b", bootstrap, "--group", group, "--format", "json", *words)
    assert done.out, done.err
    (told,) = json.loads(done.out)["groups"]
    return done.code, told


@pytest.mark.spark
def test_the_doctor_says_for_how_long_and_for_whom_a_coordinator_waits(broker, spark):
    bootstrap, group = broker.bootstrap, fresh("g")
    topic = Topic(bootstrap, 4, 5)
    with ExitStack() as stack:

        def member(name: str) -> StockMember:
            return stack.enter_context(StockMember(bootstrap, group, topic.name, name))

        slow = member("slow")
        until(lambda: n_members(bootstrap, group) == 1, "the group's first member")
        slow.hold()
        topic.produce(5)
        member("new")
        until(lambda: n_members(bootstrap, group, "PREPARING_REBALANCING") == 2, "a rebalance")
        began = time.time()
        code, told = doctored(bootstrap, group, "--fail-on", "warn")
        lasted_s = time.time() - began
        (found,) = [f for f in told["findings"] if f["code"] == "HF128"]
        assert (code, found["active"]) == (1, True)
        assert told["findings"][0] is found  # it is named first
        assert (told["state"], told["now"]["state"]) == ("Stable", JOINING)
        assert {one["client_id"] for one in told["now"]["members"]} == {"slow", "new"}
        (host,) = {one["client_host"] for one in told["now"]["members"]}
        assert f"waits for slow on {host} to join again; 1 new member waits" in found["text"]
        (awaited,) = found["evidence"]["members"]
        assert awaited.startswith("slow-")
        known_s = found["evidence"]["figures"]["at_least_s"]
        assert 0 < known_s <= lasted_s
        is_error = known_s >= Limits.rebalancing_s
        assert found["severity"] == ("error" if is_error else "warn")
        slow.release()
        until(lambda: n_members(bootstrap, group) == 2, "the end of the rebalance")
        _, told = doctored(bootstrap, group)
        assert told["now"]["state"] == "Stable"
        assert "HF128" not in {f["code"] for f in told["findings"]}


@pytest.mark.every
@pytest.mark.spark
def test_of_several_members_the_one_that_fell_silent_is_named(broker, spark):
    """Two go on committing for longer than the doctor needs to tell them from the third."""
    bootstrap, group = broker.bootstrap, fresh("g")
    topic = Topic(bootstrap, 6, 5)
    with ExitStack() as stack:
        members = [
            stack.enter_context(StockMember(bootstrap, group, topic.name, name))
            for name in ("one", "two", "slow")
        ]
        until(lambda: n_members(bootstrap, group) == 3, "three members")
        members[-1].hold()
        deadline = time.monotonic() + Limits.apart_s + 3
        while time.monotonic() < deadline:
            topic.produce(1)
            time.sleep(0.2)
        stack.enter_context(StockMember(bootstrap, group, topic.name, "new"))
        until(lambda: n_members(bootstrap, group, "PREPARING_REBALANCING") == 4, "a rebalance")
        time.sleep(1)  # what is committed on the way into the round is on record
        _, told = doctored(bootstrap, group)
        (found,) = [f for f in told["findings"] if f["code"] == "HF128"]
        assert "waits for slow on " in found["text"] and "most likely" in found["text"]
        (awaited,) = found["evidence"]["members"]
        assert awaited.startswith("slow-")


def asked(bootstrap: str, group: str) -> GroupStatePoller:
    cluster = LiveCluster(bootstrap=bootstrap)
    said: list[str] = []
    return GroupStatePoller(cluster, [group], all_groups=True, note=said.append)


def test_a_kip_848_coordinator_names_the_member_that_has_partitions_to_give_up(broker):
    bootstrap, group = broker.bootstrap, fresh("g")
    topic = Topic(bootstrap, 4, 5)
    config = {"group_protocol": "consumer"}
    states = asked(bootstrap, group)
    with StockMember(bootstrap, group, topic.name, "slow", **config) as slow:
        until(lambda: n_members(bootstrap, group) == 1, "the group's first member")
        slow.hold()
        with StockMember(bootstrap, group, topic.name, "new", **config):

            def gives_up() -> dict[str, int | None]:
                states.query(lambda _: True)
                seen = states.live.of(group).seen
                return {one.client_id: one.n_pending_revocations for one in seen.members or ()}

            until(lambda: gives_up() == {"slow": 2, "new": 0}, lambda: f"{gives_up()}")
            live = states.live.of(group)
            assert live.is_rebalancing and live.seen.state == "Reconciling"
            slow.release()
            until(lambda: not states.query(lambda _: True).rebalancing, "its end")
            assert {one.n_pending_revocations for one in states.live.of(group).seen.members} == {0}


def test_a_group_that_was_deleted_is_gone_and_one_that_never_was_is_too(broker):
    bootstrap, group = broker.bootstrap, fresh("g")
    topic = Topic(bootstrap, 1, 1)
    states = asked(bootstrap, group)
    with StockMember(bootstrap, group, topic.name, "only"):
        until(lambda: n_members(bootstrap, group) == 1, "a member")
        assert states.query(lambda _: True, [group]).of(group).seen.state == "Stable"
    until(
        lambda: states.query(lambda _: True, [group]).of(group).seen.state == "Empty", "no member"
    )
    admin_of(bootstrap).delete_consumer_groups([group])[group].result(60)
    live = states.query(lambda _: True, [group]).of(group)
    assert (live.seen, live.is_gone) == (None, True)


def test_causes_of_rebalances_are_stated(
    broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(
        "holdfast.fleet.pipeline.session.open_session"
    )  # the pipeline runs in this process
    bootstrap, group = broker.bootstrap, fresh("g")
    topic = Topic(bootstrap, 2, 5, name=f"{group}-t")
    with StockMember(bootstrap, group, topic.name, "stays"):
        until(lambda: n_members(bootstrap, group) == 1, "the group's first member")
        with StockMember(bootstrap, group, topic.name, "leaves"):
            until(lambda: n_members(bootstrap, group) == 2, "the second member")
        until(lambda: n_members(bootstrap, group) == 1, "the end of the second member")
        left_by(bootstrap, group).dump(tmp_path / "dump")

    def causes(*words: str) -> list[tuple[str, str]]:
        source = ("--input", tmp_path / "dump", "--table", "rebalances", "--format", "json")
        return [
            (row["cause"], row["cause_basis"]) for row in run("history", *source, *words).rows()
        ]

    assert {basis for _, basis in causes()} == {"inferred"}
    stated = causes("--broker-log", broker.log)
    assert {("join", "stated"), ("leave", "stated")} <= set(stated), stated
