"""150 members of one group on a stock broker, where a record of Designs II and III once broke.

The members are raw ones (:mod:`tests.live.raw_crowd`) and read nothing, so no topic is made: they
are told partition counts. ``bench/scale.py`` plays 2,000 members with 20,000 real partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.live.crew import fresh
from tests.live.offsets_log import group_sizes
from tests.live.raw_crowd import Crowd, CrowdOptions
from tests.suites import further

from holdfast.core.machine.offers import assignors_for
from holdfast.core.machine.policy import Policy
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES

pytestmark = pytest.mark.broker

N_MEMBERS = 150
PATIENCE_SECONDS = 120.0
FAILED = ("SyncAnswered", -1)


def crowd_options(
    bootstrap: str, name: str, topics: Sequence[str], n_each: int, n_asked: int, **more: object
) -> CrowdOptions:
    """Members of which each asks for some of the topics, and owns so many partitions."""
    each = N_MEMBERS * n_each // len(topics)
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
        partitions=dict.fromkeys(topics, each),
        topics_of=lambda slot: tuple(
            sorted(topics[(slot + i) % len(topics)] for i in range(n_asked))
        ),
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


@pytest.mark.parametrize("static", further([False, True]), ids=["dynamic", "static"])
@pytest.mark.parametrize("name", further(["deferred", "incremental"]))
def test_each_of_150_members_gets_back_exactly_what_it_had(broker, name, static):
    topics = ("topic-0", "topic-1", "topic-2")
    options = crowd_options(broker.bootstrap, name, topics, 50, 1, static=static)
    crowd, same = asyncio.run(bounced(options))
    assert same == 3
    assert crowd.errors[FAILED] == 0
    assert 50_000 < max(group_sizes(broker.bootstrap, options.group)) <= MESSAGE_MAX_BYTES // 4


@pytest.mark.parametrize(
    "limits", further([{"record_limit_bytes": 110_000}, {"memory_limit_bytes": 4_096}])
)
def test_a_limit_is_kept_and_the_group_lives(broker, limits):
    topics = ("topic-0", "topic-1", "topic-2")
    free = crowd_options(broker.bootstrap, "deferred", topics, 50, 1)
    asyncio.run(bounced(free))
    tight = crowd_options(broker.bootstrap, "deferred", topics, 50, 1, **limits)
    crowd, _ = asyncio.run(bounced(tight))
    assert crowd.errors[FAILED] == 0
    largest = max(group_sizes(broker.bootstrap, tight.group))
    assert largest < max(group_sizes(broker.bootstrap, free.group))
    assert largest <= limits.get("record_limit_bytes", MESSAGE_MAX_BYTES)
