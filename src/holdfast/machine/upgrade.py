"""KIP-726's two rolling bounces, and every other change of assignors, as a checked procedure.

**Rules.**

- A step changes the configurations of a group one member at a time. Every mixture of old and new
  members on the way must be sound, whichever member leads.
- A member runs in the highest mode that all its assignors support (KIP-429). A group uses an
  assignor that all its members offer.
- A mixture is sound if every member can start, and all members share a protocol type and an
  assignor. A member that keeps its partitions while it joins offers only assignors that read
  claims, so the chosen assignor does. A member that runs eager reports no partitions as owned.

For example, ``[range]`` to ``[cooperative-sticky]`` is no sound step: the members of the mixture
share no assignor. ``[range]`` to ``[cooperative-sticky, range]`` is one.

**Strategy.** It matters only which configurations a mixture contains, not how often. So for each
pair of lists "all before", "both" and "all after" are checked.

References: KIP-726 and KIP-429, "Compatibility, Upgrade path"; KIP-415 (Connect needs one bounce).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from holdfast.assignors.registry import ASSIGNORS
from holdfast.errors import ConfigError
from holdfast.machine.leader.designs import NAMES
from holdfast.machine.leader.embedded import RebalanceMode

EAGER, COOPERATIVE = RebalanceMode.EAGER, RebalanceMode.COOPERATIVE
BOTH = frozenset({EAGER, COOPERATIVE})
JAVA_NAMES = {info.java_class: info.name for info in ASSIGNORS.values() if info.java_class}
"""Java's classes -> the names of their assignors."""


class Client(StrEnum):
    """The client library of a member."""

    HOLDFAST = "holdfast"
    JAVA = "java"
    KAFKA_PYTHON = "kafka-python"
    KAFKA_PYTHON_PLUGIN = "kafka-python-holdfast"
    AIOKAFKA = "aiokafka"
    CONFLUENT = "confluent"


_CLASSES = {
    Client.KAFKA_PYTHON: {
        "range": "RangePartitionAssignor",
        "roundrobin": "RoundRobinPartitionAssignor",
        "sticky": "StickyPartitionAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    },
    Client.AIOKAFKA: {
        "range": "RangePartitionAssignor",
        "roundrobin": "RoundRobinPartitionAssignor",
        "sticky": "StickyPartitionAssignor",
    },
}
"""Python clients whose setting lists classes -> the class of each assignor that they have."""

ELSEWHERE = {
    Client.JAVA: frozenset(JAVA_NAMES.values()),
    Client.KAFKA_PYTHON: frozenset(_CLASSES[Client.KAFKA_PYTHON]),
    Client.CONFLUENT: frozenset(i.name for i in ASSIGNORS.values() if i.in_librdkafka),
}
"""Clients that run without holdfast -> the assignors that they have."""

_PLUGINS = {Client.KAFKA_PYTHON: Client.KAFKA_PYTHON_PLUGIN}
"""Clients -> the same ones with holdfast's plug-ins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of a member, as far as an upgrade looks at it.

    Parameters
    ----------
    assignors : tuple of str
        ``partition.assignment.strategy``, in order.
    client : Client
        The client library. Plain kafka-python runs in one mode only; with holdfast's plug-ins and
        ``attach`` it takes eager and cooperative assignors in one list.
    version : tuple of int
        Of the Java client, empty if new enough.
    protocol_type : str
        ``consumer`` or another.
    """

    assignors: tuple[str, ...]
    client: Client = Client.HOLDFAST
    version: tuple[int, ...] = ()
    protocol_type: str = "consumer"

    def __str__(self) -> str:
        return f"{self.client} [{', '.join(self.assignors)}]"

    @property
    def setting(self) -> str:
        """What a person writes into the configuration of this client."""
        if self.client is Client.JAVA:
            classes = [ASSIGNORS[a].java_class if a in ASSIGNORS else a for a in self.assignors]
            return f"partition.assignment.strategy={','.join(classes)}"
        if self.client in (Client.HOLDFAST, Client.CONFLUENT):
            return f"partition.assignment.strategy={','.join(self.assignors)}"
        written = ", ".join(self._written(a) for a in self.assignors)
        return f"partition_assignment_strategy=[{written}]"

    def _written(self, name: str) -> str:
        """An assignor as the Python client takes it: a class of its own or a plug-in."""
        plain = _CLASSES.get(self.client, {}).get(name)
        if plain is not None:
            return plain
        beside = len(self.assignors) > 1 and COOPERATIVE in modes_of(name, self.client)
        return f"assignor({name!r}, upgrading=True)" if beside else f"assignor({name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeFinding:
    """Why a step is not safe, or what to know about it."""

    unsafe: bool
    rule: str
    text: str
    advice: str


def modes_of(assignor: str, client: Client = Client.HOLDFAST) -> frozenset[RebalanceMode]:
    """Modes that an assignor declares in a client.

    Raises
    ------
    ConfigError
        If the assignor is unknown.
    """
    if assignor in NAMES.values():
        return BOTH
    if assignor not in ASSIGNORS:
        known = ", ".join([*sorted(ASSIGNORS), *NAMES.values()])
        raise ConfigError(f"unknown assignor {assignor!r}; known: {known}")
    if not ASSIGNORS[assignor].cooperative:
        return frozenset({EAGER})
    if client is Client.KAFKA_PYTHON:
        return frozenset({COOPERATIVE})
    return BOTH


def mode_of(config: Config) -> RebalanceMode | None:
    """The mode a member runs in, or None if its assignors share none."""
    modes = BOTH.intersection(*(modes_of(a, config.client) for a in config.assignors))
    return max(modes, default=None)


def check_group(configs: Sequence[Config]) -> list[UpgradeFinding]:
    """Check whether these configurations can be in one group at the same time.

    Parameters
    ----------
    configs : sequence of Config
        At least one; equal ones count once.

    References: KIP-726, "Upgrade path".
    """
    distinct = sorted(set(configs), key=lambda c: (str(c), c.version, c.protocol_type))
    findings = [finding for config in distinct for finding in _check_one(config)]
    if any(f.unsafe for f in findings):
        return findings
    types = sorted({c.protocol_type for c in distinct})
    if len(types) > 1:
        text = f"protocol types {' and '.join(types)} in one group"
        advice = "a group has one protocol type: stop all members, then start them anew"
        return [*findings, _unsafe("protocol-type", text, advice)]
    common = set.intersection(*(set(c.assignors) for c in distinct))
    if not common:
        text = " and ".join(str(c) for c in distinct) + " have no assignor in common"
        advice = "go by way of a list that holds the old and the new assignor"
        return [*findings, _unsafe("no-common-assignor", text, advice)]
    modes = {config: mode_of(config) for config in distinct}
    if len(set(modes.values())) > 1:
        text = "some members run EAGER and some COOPERATIVE: eager ones stop in every round"
        findings.append(
            UpgradeFinding(
                unsafe=False,
                rule="mixed-modes",
                text=text,
                advice="safe, since eager members report nothing as owned; finish the bounce",
            )
        )
    return findings


def check_step(before: Sequence[Config], after: Sequence[Config]) -> list[UpgradeFinding]:
    """Check whether members may be bounced one by one from ``before`` to ``after``.

    Parameters
    ----------
    before, after : sequence of Config
        Member by member, of equal length.

    Returns
    -------
    list of UpgradeFinding
        Each once; the step is safe if none is unsafe.

    Raises
    ------
    ConfigError
        If the lists differ in length or are empty, or an assignor is unknown.
    """
    if len(before) != len(after) or not before:
        raise ConfigError(f"members: found {len(before)} before and {len(after)} after")
    findings: list[UpgradeFinding] = []
    for mixture in ([*before], [*before, *after], [*after]):
        findings += [f for f in check_group(mixture) if f not in findings]
    return findings


def plan_upgrade(start: Config, goal: Config) -> list[Config]:
    """Configurations to roll through, one bounce each, ``goal`` last.

    Parameters
    ----------
    start, goal : Config
        Of every member. Where the client by itself cannot take a step between them, the same client
        with holdfast's plug-ins takes it.

    Raises
    ------
    ConfigError
        If no safe way of two bounces exists.

    References: KIP-726: ``["cooperative-sticky", "range"]``, then ``["cooperative-sticky"]``.
    """
    if start == goal:
        return []
    if not _unsafe_in(check_step([start], [goal])):
        return [goal]
    merged = tuple(dict.fromkeys((*goal.assignors, *start.assignors)))
    bridge = replace(goal, assignors=merged)
    bridges = [bridge, replace(bridge, client=_PLUGINS.get(bridge.client, bridge.client))]
    for between in bridges:
        steps = pairwise([start, between, goal])
        if not any(_unsafe_in(check_step([a], [b])) for a, b in steps):
            return [between, goal]
    raise ConfigError(f"no safe way from {start} to {goal} by rolling bounces: stop all first")


def _unsafe_in(findings: Sequence[UpgradeFinding]) -> bool:
    return any(f.unsafe for f in findings)


def _check_one(config: Config) -> list[UpgradeFinding]:
    if not config.assignors:
        return [_unsafe("no-assignor", "a member without assignors", "name at least one")]
    findings = []
    if mode_of(config) is None:
        text = f"{config} does not start: its assignors share no rebalance protocol"
        advice = "use holdfast's plug-ins, whose cooperative assignors also run eager"
        findings.append(_unsafe("cannot-start", text, advice))
    cooperative = [a for a in config.assignors if COOPERATIVE in modes_of(a, config.client)]
    old_java = config.client is Client.JAVA and config.version and config.version < (2, 4)
    if cooperative and (old_java or config.client is Client.AIOKAFKA):
        text = f"{config}: this client has no cooperative assignors"
        findings.append(_unsafe("client-too-old", text, "upgrade the client in a bounce before"))
    known = ELSEWHERE.get(config.client, frozenset(config.assignors))
    unknown = [a for a in config.assignors if a not in known]
    if unknown:
        text = f"{config}: this client does not have {unknown[0]}"
        findings.append(_unsafe("unknown-to-client", text, f"it has {', '.join(sorted(known))}"))
    if config.client is Client.JAVA and len(set(config.assignors)) < len(config.assignors):
        text = f"{config}: Java refuses an assignor that is named twice"
        findings.append(_unsafe("cannot-start", text, "name each once"))
    if (
        cooperative
        and config.client is Client.CONFLUENT
        and len(cooperative) < len(config.assignors)
    ):
        text = f"{config}: librdkafka refuses eager and cooperative assignors in one list"
        findings.append(_unsafe("cannot-start", text, "stop all of its members for the change"))
    return findings


def _unsafe(rule: str, text: str, advice: str) -> UpgradeFinding:
    return UpgradeFinding(unsafe=True, rule=rule, text=text, advice=advice)
