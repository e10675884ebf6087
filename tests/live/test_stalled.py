"""Members that are alive and too late: in their work, and in revoking partitions.

Java's consumer leaves when it has not polled for ``max.poll.interval.ms``; a broker removes a
member that does not rejoin, or revokes nothing, within its rebalance timeout. Neither is
the end of a session, because heartbeats come all the time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.live.kinds import Members, await_spread, rows_of, tables_of
from tests.live.processes import create_topic
from tests.live.test_kinds import produce
from tests.live.waiting import until
from tests.live.wild import broker_with_short_sessions

pytestmark = pytest.mark.broker

LATE_MS = 9_000
TIMES = {"max.poll.interval.ms": LATE_MS, "auto.commit.interval.ms": 500}
CLASSIC = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


@pytest.fixture(scope="module")
def logged():
    with broker_with_short_sessions() as broker:
        yield broker


def departure(tables, group):
    """The first rebalance after which a member is missing."""
    return next(row for row in rows_of(tables, "rebalances", group) if row["n_left"])


CASES = {
    ("classic", "work"): ("poll_timeout", "consumer poll timeout has expired"),
    ("consumer", "work"): ("leave", "left the consumer group"),
    ("classic", "revoke"): ("join_and_leave", "haven't joined"),
    ("consumer", "revoke"): ("rebalance_timeout", "failed to transition from epoch"),
}
"""How a member takes part and where it stalls -> the cause of its end, and what the broker logs."""


@pytest.mark.slow
def test_a_member_that_stalls_has_not_lost_its_session(logged, tmp_path):
    """Two cases side by side: more members than that make a small machine lose their sessions."""

    def group_of(case):
        folder = tmp_path / "-".join(case)
        folder.mkdir()
        return stalled(logged.bootstrap, folder, *case)

    with ThreadPoolExecutor(2) as pool:
        groups = dict(zip(CASES, pool.map(group_of, CASES), strict=True))
    told = tables_of(logged.bootstrap, tmp_path / "stated", logs=logged.logs)
    untold = tables_of(logged.bootstrap, tmp_path / "inferred")
    for case, (cause, words) in CASES.items():
        stated, inferred = (departure(tables, groups[case]) for tables in (told, untold))
        assert (stated["cause"], stated["cause_basis"]) == (cause, "stated"), stated
        assert words in stated["stated_reason"], stated
        assert stated["n_left"] == 1
        assert inferred["cause_basis"] == "inferred" and inferred["cause"] != "session_timeout", (
            inferred
        )


def stalled(bootstrap, folder, protocol, stalls):
    """Have a member stall until another one has all; the name of their group."""
    topic = create_topic(bootstrap, 4)
    produce(bootstrap, topic, 100)  # so that the member that stalls has committed something
    group = f"stalled-{protocol}-{stalls}-{topic}"
    settings = {**TIMES, "group.protocol": protocol}
    if protocol == "classic":
        settings |= {**CLASSIC, "partition.assignment.strategy": RANGE}
    given = {key.replace(".", "_"): str(value) for key, value in settings.items()}

    with Members(bootstrap, folder) as crew:
        words_of = [f"{key}={value}" for key, value in settings.items()]
        crew.program("late", "LiveStalled", topic, group, "late", stalls, *words_of)
        first = await_spread(bootstrap, group, 4, said=lambda: crew.said("late", 500))
        crew.consumer("other", group, topic, **given)
        if stalls == "work":
            await_spread(bootstrap, group, 2, 2, said=lambda: crew.said("other", 500))
            produce(bootstrap, topic, 100)
        until(lambda: "stalls" in crew.said("late"), lambda: crew.said("late"))
        await_spread(bootstrap, group, 4, without=first, said=lambda: crew.said("other", 500))
    return group
