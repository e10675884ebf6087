"""150 members of one group on a stock broker, where a record of Designs II and III once failed.

The members are raw ones (:mod:`tests.live.raw_crowd`) and read nothing, so no topic is made: they
are given partition counts. ``bench/scale.py`` runs 2,000 members with 20,000 real partitions.
"""

from __future__ import annotations

import asyncio
from functools import cache

import pytest
from tests.live.crew import fresh
from tests.live.offsets_log import group_sizes
from tests.live.raw_crowd import Crowd, CrowdOptions
from tests.suites import further

from holdfast.core.machine.policy import Policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES

pytestmark = pytest.mark.broker

N_MEMBERS = 150
TOPICS = ("topic-0", "topic-1", "topic-2")
PATIENCE_SECONDS = 120.0
FAILED = ("SyncAnswered", -1)


def crowd_options(bootstrap: str, name: str, **more: object) -> CrowdOptions:
    """Members of which each asks for one of the topics, and owns 50 partitions."""
    each = N_MEMBERS * 50 // len(TOPICS)
    settings = {
        "delay_ms": 300_000,
        "batch": 1_000,
        "interval_ms": 100,
        **{k: v for k, v in more.items() if k != "static"},
    }
    return CrowdOptions(
        bootstrap=bootstrap,
        group=fresh("crowd"),
        assignors=assignors_for(name, Policy(**settings)),
        partitions=dict.fromkeys(TOPICS, each),
        topics_of=lambda slot: (TOPICS[slot % len(TOPICS)],),
        static=bool(more.get("static")),
        heartbeat_ms=1_000,
    )


async def bounced(options: CrowdOptions) -> tuple[Crowd, int]:
    """Bounce the leader and two more; the crowd, and how many of the three have what they had."""
    crowd, same = Crowd(options), 0
    await crowd.open()
    try:
        for slot in range(N_MEMBERS):
            await crowd.start(slot)
        await crowd.until(crowd.even, "the first rounds", PATIENCE_SECONDS)
        for slot in (crowd.leader, 7, 77):
            had = crowd.owned(slot)
            await crowd.stop(slot)
            await crowd.start(slot)
            await crowd.until(crowd.settled, f"{slot} is back", PATIENCE_SECONDS)
            same += crowd.owned(slot) == had
    finally:
        crowd.close()
        await asyncio.sleep(0)
    return crowd, same


@cache
def largest_record(bootstrap: str, name: str, **more: int) -> tuple[int, int]:
    """The largest record of a bounced group, and how many of three have what they had; once."""
    options = crowd_options(bootstrap, name, **more)
    crowd, same = asyncio.run(bounced(options))
    assert crowd.errors[FAILED] == 0
    return max(group_sizes(bootstrap, options.group)), same


@pytest.mark.parametrize("static", further([False, True]), ids=["dynamic", "static"])
@pytest.mark.parametrize("name", further(["deferred", "incremental"]))
def test_each_of_150_members_gets_back_exactly_what_it_had(broker, name, static):
    largest, same = largest_record(broker.bootstrap, name, static=static)
    assert same == 3
    assert 50_000 < largest <= MESSAGE_MAX_BYTES // 4


@pytest.mark.parametrize(
    "limits", further([{"record_limit_bytes": 110_000}, {"leader_state_limit_bytes": 4_096}])
)
def test_a_limit_is_kept_and_the_group_lives(broker, limits):
    free, _ = largest_record(broker.bootstrap, "deferred", static=False)
    largest, _ = largest_record(broker.bootstrap, "deferred", static=False, **limits)
    assert largest < free
    assert largest <= limits.get("record_limit_bytes", MESSAGE_MAX_BYTES)
