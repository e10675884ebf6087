"""What a replay takes for granted: costs that no record of a group has.

**Rules.** Every cost is a given one (``--cost``), or a default that is named as an assumption
wherever its numbers are printed. A *hand-over* is a partition that is taken from its owner and
processed again, by another member or by the same one: its cost is how long the partition stands
still, beside the time in which a member is awaited. It holds whatever members do meanwhile: finish
a batch, commit, join, rebuild state, fetch.

**Strategy.** Members notice a rebalance by their heartbeats, so the default of a hand-over is a
multiple of the heartbeat: :data:`HAND_OVERS`, one row a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.core.machine.policies import find_policy
from holdfast.core.machine.upgrade import Client
from holdfast.fleet.pipeline.replay.happenings import Story
from holdfast.sim.baselines import BASELINES

HAND_OVER: Final = "hand-over"

COSTS: Final[Mapping[str, tuple[int | None, str]]] = {
    HAND_OVER: (None, "a partition stands still whenever it is taken from its owner"),
    "heartbeat": (3_000, "heartbeat.interval.ms of the members"),
    "broker-heartbeat": (5_000, "group.consumer.heartbeat.interval.ms of the broker (KIP-848)"),
    "session": (45_000, "session.timeout.ms, where the records do not have it"),
    "broker-session": (45_000, "group.consumer.session.timeout.ms of the broker (KIP-848)"),
    "restart": (10_000, "from the end of a killed process to its next start, if no record tells"),
}
"""Cost -> its default in ms, and what it is. The default of a hand-over is the client's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverBeats:
    """How long a hand-over takes with one client, in heartbeats.

    Parameters
    ----------
    eager, cooperative, kip848 : float
        By what the members' protocol is.
    stops_all : bool
        In a cooperative round a member stops all that it keeps from its join until it is assigned.
    """

    eager: float
    cooperative: float
    kip848: float
    stops_all: bool = False


HAND_OVERS: Final[Mapping[str, HandOverBeats]] = {
    "librdkafka": HandOverBeats(eager=0.4, cooperative=1.1, kip848=0.7),
    "kafka-python": HandOverBeats(eager=0.7, cooperative=0.8, kip848=0.7, stops_all=True),
    "java": HandOverBeats(eager=0.7, cooperative=1.5, kip848=0.7),
    "holdfast": HandOverBeats(eager=0.9, cooperative=2.0, kip848=0.7),
    "": HandOverBeats(eager=0.9, cooperative=2.0, kip848=0.7),
}
"""Client -> its hand-overs.

In ``bench/whatif.py`` members that cost nothing are bounced cleanly in one run, and killed in
another. Of both the dearer hand-over counts, on average over the run, rounded up (docs/replay.md).
That of KIP-848 is librdkafka's. "" is a client that no record names: the dearest of all.
"""


LIBRARIES: Final[Mapping[Client | str | None, str]] = {
    Client.CONFLUENT: "librdkafka",
    **{client: str(client) for client in (Client.KAFKA_PYTHON, Client.JAVA, Client.HOLDFAST)},
}
"""Client library that a group's records tell -> its row."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """One cost of one replay: its value, and where that comes from."""

    ms: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCosts:
    """Costs that the user gives; the others have their defaults.

    Parameters
    ----------
    given : mapping of str to int
        Names of :data:`COSTS`, and ms.
    """

    given: Mapping[str, int] = field(default_factory=dict)

    def of(self, name: str) -> Assumed:
        """A cost other than that of a hand-over."""
        if name in self.given:
            return Assumed(self.given[name], "given")
        default, _ = COSTS[name]
        assert default is not None
        return Assumed(default, "assumed")

    def session(self, story: Story) -> Assumed:
        """The session of a story's members under a policy of classic groups."""
        if story.session_ms > 1:
            return Assumed(story.session_ms, "recorded")
        return self.of("session")

    def restart(self, story: Story) -> Assumed:
        """How long a killed member is away."""
        if "restart" not in self.given and story.restart_ms >= 0:
            return Assumed(story.restart_ms, "recorded")
        return self.of("restart")

    def hand_over(self, story: Story, policy: str) -> Assumed:
        """A hand-over under a policy."""
        if HAND_OVER in self.given:
            return Assumed(self.given[HAND_OVER], "given")
        client = runs(story, policy)
        known = HAND_OVERS[client]
        name, beats = "heartbeat", known.eager
        if policy == "kip848":
            name, beats = "broker-heartbeat", known.kip848
        elif policy in BASELINES or find_policy(policy).cooperative:
            beats = known.cooperative
        beat = self.of(name)
        who = client or "a client that no record names"
        told = f"assumed: {beats:g} x {name} ({beat.ms} ms, {beat.basis}), {who}"
        return Assumed(round(beats * beat.ms), told)


def runs(story: Story, policy: str) -> str:
    """The client that runs a policy: that of the group, or the only one that has the policy."""
    if policy == "connect":
        return "java"
    own = policy not in BASELINES and find_policy(policy).design is not None
    return "holdfast" if own else story.client
