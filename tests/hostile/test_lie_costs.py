"""What a lie of any size costs the leader that reads it, beside an honest turn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from tests.hostile.cost import MOST, ratios_of
from tests.hostile.group import ASSIGNORS, N_LYING, TOPICS, HostileGroup
from tests.suites import further

from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription
from holdfast.core.wire.layouts.container import (
    FailedPartitions,
    MemberSubscription,
    encode_member_subscription,
)


def lies(n_bytes: int, generation: int) -> Mapping[str, bytes]:
    real = tuple(TOPICS)
    many = (("orders", tuple(range(n_bytes // 4))),)
    sparse = tuple((f"z{i}", (16_383,)) for i in range(n_bytes // 14))
    often = (("orders", tuple(range(121)) * (n_bytes // 484)),)
    names = tuple(f"u{i}" for i in range(n_bytes // 8))
    said = {
        "many": Subscription(topics=real, owned=many, generation=generation),
        "sparse": Subscription(topics=real, owned=sparse, generation=generation),
        "often": Subscription(topics=real, owned=often, generation=generation),
        "names": Subscription(topics=names),
        "user data": Subscription(topics=real, user_data=bytes(n_bytes)),
    }
    framed = {
        "given up": MemberSubscription(topics=real, given_up=many),
        "failed": MemberSubscription(
            topics=real, failed=(FailedPartitions("orders", "", tuple(range(n_bytes))),)
        ),
        "failed, each alone": MemberSubscription(
            topics=real,
            failed=tuple(FailedPartitions("orders", f"{i}", (0,)) for i in range(n_bytes // 14)),
        ),
        "share": MemberSubscription(topics=real, memory=bytes(n_bytes)),
    }
    return {name: encode_subscription(value) for name, value in said.items()} | {
        name: encode_member_subscription(value) for name, value in framed.items()
    }


SIZES = (7_500, 250_000)
"""The largest that is read of each kind, and one that is not."""


@pytest.mark.parametrize("name", further(ASSIGNORS, stays=["holdfast-deferred"]))
@pytest.mark.parametrize("n_bytes", SIZES)
def test_a_lie_costs_at_most_ten_honest_turns(name: str, n_bytes: int) -> None:
    group = HostileGroup(name, 0)
    next(group.run())
    truth = group.request(group.truth(b""))
    for kind, lie in lies(n_bytes, group.generation).items():
        ratios = ratios_of(name, group.request(lie), truth)
        assert max(ratios["memory"], ratios["calls"]) <= MOST, (kind, ratios)


@pytest.mark.parametrize("name", further(ASSIGNORS, stays=["holdfast-deferred"]))
def test_a_drawn_lie_costs_at_most_ten_honest_turns(name: str) -> None:
    chance = np.random.default_rng(7)
    for seed in range(2):
        rounds = list(HostileGroup(name, seed, largest=900_000).run())
        for i in chance.choice(N_LYING, 3, replace=False).tolist():
            ratios = ratios_of(name, rounds[i].request, rounds[i].truth)
            assert max(ratios["memory"], ratios["calls"]) <= MOST, (seed, i, ratios)


@pytest.mark.parametrize("name", further(ASSIGNORS, stays=["holdfast-deferred"]))
def test_the_truth_about_everything_costs_at_most_ten_honest_turns(name: str) -> None:
    group = HostileGroup(name, 0)
    next(group.run())
    everything = Subscription(
        topics=tuple(TOPICS),
        owned=tuple((topic, tuple(range(n))) for topic, n in TOPICS.items()),
        generation=group.generation,
    )
    request = group.request(encode_subscription(everything))
    ratios = ratios_of(name, request, group.request(group.truth(b"")))
    assert max(ratios["memory"], ratios["calls"]) <= MOST, ratios
