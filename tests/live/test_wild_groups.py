"""Random groups of all kinds, compared with the broker's answers and the members' event logs.

``python -m pytest -m slow tests/live/test_wild_groups.py``; a seed chooses the groups and the
faults.
"""

from __future__ import annotations

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.live.disturbed import Writer
from tests.live.kinds import Members, ask, assigned, described, rows_of, streams_tasks, tables_of
from tests.live.processes import create_topic
from tests.live.test_more_kinds import admin_view, lags, our_lags
from tests.live.waiting import until
from tests.live.wild import (
    GROUPS,
    SESSION_MS,
    WildGroup,
    broker_with_short_sessions,
    in_turn,
    is_within,
)
from tests.pipeline.kinds import printed

from holdfast.fleet.pipeline.history.broker_log import CONTRADICTED

pytestmark = [pytest.mark.broker, pytest.mark.slow]

N_GROUPS, PARTITIONS, ACTS = 5, 6, 5


@pytest.fixture
def logged():
    with broker_with_short_sessions() as broker:
        yield broker


def shared(bootstrap, group):
    """{member: partitions} of a share group."""
    own = ("--describe", "--group", group, "--members", "--verbose")
    return {
        row["CONSUMER-ID"]: {
            (topic, int(number))
            for topic, numbers in re.findall(r"([\w.-]+):([\d,]+)", row.get("ASSIGNMENT", ""))
            for number in numbers.split(",")
        }
        for row in printed(ask("share", bootstrap, *own))
    }


def view(bootstrap, wild):
    """What the broker says of a group's members: {member: what it has}."""
    if wild.kind == "share":
        return shared(bootstrap, wild.name)
    if wild.kind == "streams":
        return streams_tasks(bootstrap, wild.name)
    if wild.kind == "workers":
        return dict.fromkeys(admin_view(bootstrap, wild.name)[3])
    return described(bootstrap, wild.name)


def is_still(bootstrap, wild):
    """Whether every slot has its member, and nothing has changed for a while."""
    wild.fill()
    before = view(bootstrap, wild)
    if len(before) != len(wild.slots) or not all(v is None or v for v in before.values()):
        return False
    if wild.kind == "workers" and admin_view(bootstrap, wild.name)[2] != "Stable":
        return False
    time.sleep(SESSION_MS / 1000)
    if wild.kind not in ("workers", "share", "streams") and any(
        lag for lag, _ in lags(bootstrap, wild.name).values()
    ):
        return False
    return view(bootstrap, wild) == before


@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_of_random_groups_is_what_the_broker_and_the_members_say(
    logged, tmp_path, seed
):
    chance = random.Random(seed)
    bootstrap = logged.bootstrap
    kinds = ["share", *chance.sample(sorted(GROUPS.keys() - {"share"}), N_GROUPS - 1)]
    with Members(bootstrap, tmp_path) as crew:
        groups = []
        for kind in kinds:
            topic = create_topic(bootstrap, PARTITIONS, kind)
            own = random.Random(chance.random())
            groups.append(WildGroup(kind, f"g-{topic}", topic, crew, own))
        writer = Writer(bootstrap, 0.2)
        for group in groups:
            writer.add(group.topic, list(range(PARTITIONS)))
        for group in groups:
            group.fill()
        for group in groups:  # else who is ended has never been a member
            until(
                lambda group=group: len(view(bootstrap, group)) == len(group.slots),
                lambda group=group: (
                    f"{group.name} is full: {view(bootstrap, group)}; {said(group)}"
                ),
                240,
            )
        with ThreadPoolExecutor(len(groups)) as pool:
            list(pool.map(live, groups))
        for group in groups:
            group.fill()
        writer.close()
        for group in groups:
            until(
                lambda group=group: is_still(bootstrap, group),
                lambda group=group: (
                    f"{group.name} is still: {view(bootstrap, group)}; {group.done}; {said(group)}"
                ),
                240,
            )
        seen = {group.name: view(bootstrap, group) for group in groups}
        lag = {g.name: lags(bootstrap, g.name) for g in groups if g.kind in PLAIN}
        tables = tables_of(bootstrap, tmp_path, logs=logged.logs)
        assert {group.name: view(bootstrap, group) for group in groups} == seen
    for group in groups:
        check_members(tables, group, seen[group.name])
        if group.kind in PLAIN:
            assert our_lags(tables, group.name) == lag[group.name], group.done
        if group.has_recordings:
            check_owners(tables, group)
        check_causes(tables, group)
    wrong = [r for r in tables.table("anomalies").to_pylist() if r["kind"] in ODD]
    assert wrong == [], [group.done for group in groups]


def said(group):
    return {name: group.crew.said(name, 300) for name in group.slots.values()}


PLAIN = ("mixed", "eager", "deferred", "next", "migrating")
ODD = ("double_owner", "unreadable_assignment", CONTRADICTED)


LATELY_S = 60
ENDED = {
    "leave": {"leave"},
    "session_timeout": {"kill", "stop"},
    "rebalance_timeout": {"kill", "stop"},
    "leave_and_timeout": {"leave", "kill", "stop"},
}
"""Cause -> what was done to the members that went."""


def live(group):
    """Act at random moments."""
    for _ in range(ACTS):
        time.sleep(group.chance.uniform(3, SESSION_MS / 1000 + 4))
        group.act()


def check_members(tables, group, said):
    """The last generation has the members of the broker, and what they have."""
    rows = rows_of(tables, "generations", group.name)
    generation = max(rows, key=lambda row: row["log_offset"])
    found = assigned(tables, generation, "shared" if group.kind == "share" else "active")
    assert generation["n_members"] == len(said), group.done
    if group.kind == "workers":
        assert found.keys() == said.keys()
    elif group.kind == "tasks":  # the tools name partitions, the tables tasks
        assert {m: {n for _, n in tasks} for m, tasks in found.items()} == {
            m: {n for _, n in tps} for m, tps in said.items()
        }
    else:
        assert found == said, group.done


def check_owners(tables, group):
    """Whoever said that it got a partition was its owner then, by the tables."""
    rows = rows_of(tables, "members", group.name)
    client = {row["member_id"]: row["client_id"] for row in rows}
    owned = sorted(
        (row["timestamp"], row["partition"], client[row["member_id"]])
        for row in rows_of(tables, "assignments", group.name)
    )
    recorded = in_turn((partition, name) for _, partition, name in owned)
    for partition, names in group.owners().items():
        assert is_within(names, recorded[partition]), (partition, names, recorded[partition])


def check_causes(tables, group):
    """Whoever went with a leave was told to end, and whoever ran out of time was not."""
    clients = {}
    for row in rows_of(tables, "members", group.name):
        key = (row["generation"], row["timestamp"])
        clients.setdefault(key, {})[row["member_id"]] = row["client_id"]
    rows = rows_of(tables, "generations", group.name)
    rows.sort(key=lambda row: row["log_offset"])
    keys = [(row["generation"], row["timestamp"]) for row in rows]
    before = dict(zip(keys[1:], keys, strict=False))
    for row in rows_of(tables, "rebalances", group.name):
        key = (row["generation"], row["timestamp"])
        if row["cause"] not in ENDED or key not in before:
            continue
        now, at = clients.get(key, {}), row["timestamp"].timestamp()
        gone = [c for member, c in clients.get(before[key], {}).items() if member not in now]
        deeds = {group.last_deed(client, at) for client in gone}
        assert deeds <= ENDED[row["cause"]], (row, gone, group.done)
        if row["cause"] == "leave_and_timeout":  # some of them may be in no record
            deeds |= {what for when, _, what in group.done if at - LATELY_S <= when <= at}
            assert "leave" in deeds and deeds & {"kill", "stop"}, (row, gone, group.done)
