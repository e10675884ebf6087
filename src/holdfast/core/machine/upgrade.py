"""KIP-726's two rolling bounces, and every other change of assignors, as a checked procedure.

**Rules.**

- A step changes the configurations of a group one member at a time. Every mixture of old and new
  members on the way must be sound, whichever member leads.
- A member runs in the highest rebalance protocol that all its assignors support (KIP-429). A group
  uses an assignor that all its members support.
- A mixture is sound if every member can start, and all members share a protocol type and an
  assignor. A client refuses what its library refuses, so a plan prints only steps that the named
  client can take, as they are written into its configuration.
- A member that keeps its partitions while it joins supports only assignors that read claims, so the
  chosen assignor reads them. A member that runs eager reports no partitions as owned.
- A holdfast assignor in kafka-python's own consumer receives only the assignments that it was
  chosen for, so it cannot claim what another assignor of its list was given. A member with such a
  list runs eager: its cooperative assignors are ``upgrading``.

For example, ``[range]`` to ``[cooperative-sticky]`` is not a sound step: the members of the mixture
share no assignor. ``[range]`` to ``[cooperative-sticky, range]`` is one.

- A policy such as ``failback`` runs under the protocol of another design, so the list alone does
  not show it: members have ``holdfast.policy`` beside a list that names this protocol. While some
  have it and others do not, the leader's policy counts; each policy keeps the group sound.
- A user's own assignor is described by its own protocol name and rebalance protocols.

**Strategy.** It matters only which configurations a mixture contains, not how often. So for each
pair of lists "all before", "both" and "all after" are checked. A procedure has one bounce where
that is safe, else two: every member first supports both the new and the old assignors. A client
that cannot take a list is replaced in the bounce that brings the list. A ``holdfast.Worker``
supports all designs by itself, so one bounce is enough.

References: KIP-726 and KIP-429, "Compatibility, Upgrade path"; KIP-415 (Connect needs one bounce).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from holdfast.core.assignors.registry import ASSIGNORS, JAVA_NAMES, unknown
from holdfast.core.machine.leader.assignor_protocol import RebalanceProtocol
from holdfast.core.machine.policy import DESIGNS, POLICIES, policy_of_protocol
from holdfast.core.model.constants import DESIGN_NAMES, Design
from holdfast.errors import ConfigError

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
BOTH = frozenset({EAGER, COOPERATIVE})
EAGER_ONES = frozenset(info.name for info in ASSIGNORS.values() if not info.cooperative)


class Client(StrEnum):
    """The client library of a member."""

    HOLDFAST = "holdfast"
    WORKER = "holdfast-worker"
    JAVA = "java"
    KAFKA_PYTHON = "kafka-python"
    KAFKA_PYTHON_PLUGIN = "kafka-python-holdfast"
    AIOKAFKA = "aiokafka"
    AIOKAFKA_PLUGIN = "aiokafka-holdfast"
    CONFLUENT = "confluent"
    HOLDFAST_KAFKA = "holdfast.kafka"
    HOLDFAST_AIOKAFKA = "holdfast.aiokafka"
    HOLDFAST_CONFLUENT = "holdfast.confluent"


_MEMBERS = (
    Client.HOLDFAST,
    Client.HOLDFAST_KAFKA,
    Client.HOLDFAST_AIOKAFKA,
    Client.HOLDFAST_CONFLUENT,
)
"""Clients whose member is holdfast's: they take every list."""

_TAKE_OWN = (*_MEMBERS, Client.KAFKA_PYTHON_PLUGIN, Client.AIOKAFKA_PLUGIN)
"""Clients whose list may name a user's own assignor."""

_SPELLED_AS_KAFKA = (
    *(Client.HOLDFAST, Client.WORKER),
    *(Client.CONFLUENT, Client.HOLDFAST_CONFLUENT),
)
"""Clients whose configuration has Kafka's keys; Java lists classes, the others use keywords."""

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

_JAVA_CLASSES = {name: java_class for java_class, name in JAVA_NAMES.items()}

KNOWN_TO = {
    **dict.fromkeys(_MEMBERS, frozenset({*ASSIGNORS, *DESIGNS})),
    Client.WORKER: frozenset(DESIGNS),
    Client.JAVA: frozenset(JAVA_NAMES.values()),
    Client.KAFKA_PYTHON: frozenset(_CLASSES[Client.KAFKA_PYTHON]),
    Client.KAFKA_PYTHON_PLUGIN: frozenset(ASSIGNORS),
    Client.AIOKAFKA: frozenset(_CLASSES[Client.AIOKAFKA]),
    Client.AIOKAFKA_PLUGIN: EAGER_ONES,
    Client.CONFLUENT: frozenset(i.name for i in ASSIGNORS.values() if i.in_librdkafka),
}
"""Clients -> the assignors and designs that they can support."""

_INSTEAD = {
    Client.KAFKA_PYTHON: (Client.KAFKA_PYTHON_PLUGIN, Client.HOLDFAST_KAFKA),
    Client.KAFKA_PYTHON_PLUGIN: (Client.HOLDFAST_KAFKA,),
    Client.AIOKAFKA: (Client.AIOKAFKA_PLUGIN, Client.HOLDFAST_AIOKAFKA),
    Client.AIOKAFKA_PLUGIN: (Client.HOLDFAST_AIOKAFKA,),
    Client.CONFLUENT: (Client.HOLDFAST_CONFLUENT,),
}
"""Clients -> their replacements, by a keyword or an import: the smallest change first."""

COOPERATIVE_JAVA = (2, 4)
"""The first Java client with cooperative assignors (KIP-429)."""

_DEFAULTS = {
    Client.HOLDFAST: ("cooperative-sticky",),
    Client.WORKER: (DESIGN_NAMES[Design.SIMPLE],),
    Client.AIOKAFKA: ("roundrobin",),
    Client.AIOKAFKA_PLUGIN: ("roundrobin",),
    Client.HOLDFAST_AIOKAFKA: ("roundrobin",),
}


def default_assignors(client: Client, version: tuple[int, ...] = ()) -> tuple[str, ...]:
    """Return the assignors of a client whose configuration names none.

    Parameters
    ----------
    client : Client
        A drop-in has the default of its original.
    version : tuple of int
        Version of the Java client, empty for a new one.

    References: KIP-726, "Upgrade path"; Java's default since 3.0 is KAFKA-12464's.
    """
    if client is Client.JAVA:
        return ("range",) if version and version < (3, 0) else ("range", "cooperative-sticky")
    return _DEFAULTS.get(client, ("range", "roundrobin"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAssignor:
    """A user's own assignor, reduced to what an upgrade needs."""

    written: str  # as a list names it: ``module:name``
    protocol: str
    rebalance_protocols: frozenset[RebalanceProtocol]


def needs_policy(name: str) -> bool:
    """Return whether the protocols of members do not show their policy, as of ``failback``."""
    info = POLICIES.get(name)
    if info is None or info.design is None:
        return False
    return policy_of_protocol(info.protocols[0]) is not info


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of a member, reduced to what an upgrade needs."""

    assignors: tuple[str, ...]  # ``partition.assignment.strategy``, in order
    policy: str = ""  # ``holdfast.policy`` beside the list, where :func:`needs_policy`
    own: tuple[ListedAssignor, ...] = ()  # the user's own assignors by their names in a list
    # The client library. Kafka-python by itself runs in one rebalance protocol only; with
    # holdfast's assignors it takes eager and cooperative ones in one list, and then runs eager.
    client: Client = Client.HOLDFAST
    version: tuple[int, ...] = ()  # of the Java client, empty if new enough
    protocol_type: str = "consumer"  # ``consumer`` or another

    def __str__(self) -> str:
        return f"{self.client} [{', '.join(self.assignors)}]"

    @property
    def supported_protocols(self) -> tuple[str, ...]:
        """Protocols in JoinGroup: a worker that names one design supports the others after it."""
        if self.client is Client.WORKER and len(self.assignors) == 1:
            return (*self.assignors, *(d for d in DESIGNS if d not in self.assignors))
        protocols = {one.written: one.protocol for one in self.own}
        return tuple(protocols.get(a, a) for a in self.assignors)

    def rebalance_protocols_of(self, assignor: str) -> frozenset[RebalanceProtocol]:
        """Return the rebalance protocols that an assignor of the list declares."""
        own = next((one.rebalance_protocols for one in self.own if one.written == assignor), None)
        return rebalance_protocols_of(assignor, self.client) if own is None else own

    def knows(self, assignor: str) -> bool:
        """Return whether the client can support an assignor."""
        is_own = any(one.written == assignor for one in self.own)
        if is_own and self.client is Client.AIOKAFKA_PLUGIN:
            return EAGER in self.rebalance_protocols_of(assignor)
        return assignor in KNOWN_TO[self.client] or (is_own and self.client in _TAKE_OWN)

    @property
    def group_type(self) -> str:
        """The protocol type in JoinGroup: workers have their own."""
        return "holdfast" if self.client is Client.WORKER else self.protocol_type

    @property
    def setting(self) -> str:
        """The text that a person writes into the configuration of this client."""
        if self.client is Client.WORKER and len(self.assignors) == 1:
            policy = policy_of_protocol(self.assignors[0])
            named = self.assignors[0] if policy is None else policy.name
            return f"holdfast.policy={self.policy or named}"
        if self.client is Client.JAVA:
            classes = [_JAVA_CLASSES.get(a, a) for a in self.assignors]
            return f"partition.assignment.strategy={','.join(classes)}"
        if self.client in _SPELLED_AS_KAFKA:
            beside = f", holdfast.policy={self.policy}" if self.policy else ""
            return f"partition.assignment.strategy={','.join(self.assignors)}{beside}"
        written = ", ".join(self._written(a) for a in self.assignors)
        beside = f", holdfast_policy={self.policy!r}" if self.policy else ""
        return f"partition_assignment_strategy=[{written}]{beside}"

    def _written(self, name: str) -> str:
        """Return an assignor as the Python client takes it: its own class or one of holdfast's."""
        if self.client in _MEMBERS:
            return repr(name)
        plain = _CLASSES.get(self.client, {}).get(name)
        if plain is not None:
            return plain
        arguments = [repr(name)]
        if len(self.assignors) > 1 and COOPERATIVE in self.rebalance_protocols_of(name):
            arguments.append("upgrading=True")
        if name in ASSIGNORS and "group_id" in ASSIGNORS[name].options:
            arguments.append("group_id='...'")
        return f"assignor({', '.join(arguments)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeFinding:
    """A reason why a step is not safe, or a remark on it."""

    unsafe: bool
    rule: str
    text: str
    advice: str


def rebalance_protocols_of(
    assignor: str, client: Client = Client.HOLDFAST
) -> frozenset[RebalanceProtocol]:
    """Return the rebalance protocols that an assignor declares in a client."""
    if assignor in DESIGNS:
        return BOTH
    if assignor not in ASSIGNORS:
        raise unknown(assignor, DESIGNS)
    if not ASSIGNORS[assignor].cooperative:
        return frozenset({EAGER})
    if client in (Client.KAFKA_PYTHON, Client.CONFLUENT):
        return frozenset({COOPERATIVE})
    return BOTH


def rebalance_protocol_of(config: Config) -> RebalanceProtocol | None:
    """Return the rebalance protocol of a member, or None if its assignors share none."""
    if config.client is Client.KAFKA_PYTHON_PLUGIN and len(config.assignors) > 1:
        return EAGER
    rebalance_protocols = BOTH.intersection(*map(config.rebalance_protocols_of, config.assignors))
    return max(rebalance_protocols, default=None)


def check_group(configs: Sequence[Config]) -> list[UpgradeFinding]:
    """Check whether configurations can be in one group at the same time."""
    distinct = sorted(set(configs), key=lambda c: (str(c), c.version, c.group_type))
    findings = [finding for config in distinct for finding in _check_one(config)]
    if any(f.unsafe for f in findings):
        return findings
    types = sorted({c.group_type for c in distinct})
    if len(types) > 1:
        text = f"protocol types {' and '.join(types)} in one group"
        advice = "a group has one protocol type: stop all members, then start them again"
        return [*findings, _unsafe("protocol-type", text, advice)]
    common = set.intersection(*(set(c.supported_protocols) for c in distinct))
    if not common:
        text = " and ".join(str(c) for c in distinct) + " have no assignor in common"
        advice = "go by way of a list that holds the old and the new assignor"
        return [*findings, _unsafe("no-common-assignor", text, advice)]
    rebalance_protocols = {config: rebalance_protocol_of(config) for config in distinct}
    if len(set(rebalance_protocols.values())) > 1:
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
    """
    if len(before) != len(after) or not before:
        raise ConfigError(f"members: found {len(before)} before and {len(after)} after")
    findings: list[UpgradeFinding] = []
    for mixture in ([*before], [*before, *after], [*after]):
        findings += [f for f in check_group(mixture) if f not in findings]
    return findings


def plan_group(before: Sequence[Config], after: Sequence[Config]) -> list[list[Config]]:
    """Return the configurations of a group's members at the start and after each bounce.

    Parameters
    ----------
    before, after : sequence of Config
        Member by member, of equal length. Where the client by itself does not have an assignor, or
        cannot take a step, another one replaces it: the same with holdfast's assignors, the drop-in
        for it, or a Java client that is new enough.

    Returns
    -------
    list of list of Config
        The start first, then one list a bounce, none if nothing changes. Two bounces that are not
        safe are no procedure: :func:`check_step` says why.
    """
    start = [_able(c) for c in before]
    goal = [_able(c) for c in after]
    if start == goal:
        return [start]
    if not _unsafe_in(check_step(start, goal)):
        return [start, goal]
    between = [a if a == b else _bridge(a, b) for a, b in zip(start, goal, strict=True)]
    return [start, between, goal]


def has_way(client: Client, start: Sequence[str], goal: Sequence[str]) -> bool:
    """Return whether members of a client may be bounced from some assignors to others."""
    sides = [[Config(client=client, assignors=tuple(side))] for side in (start, goal)]
    stages = plan_group(*sides)
    return not any(_unsafe_in(check_step(a, b)) for a, b in pairwise(stages))


def _bridge(start: Config, goal: Config) -> Config:
    """Return a member's configuration between two bounces: in one of the two clients or another."""
    both = tuple(dict.fromkeys((*goal.assignors, *start.assignors)))
    policy = goal.policy or start.policy
    own = tuple(dict.fromkeys((*goal.own, *start.own)))
    sides = [replace(side, assignors=both, policy=policy, own=own) for side in (goal, start)]
    bridges = (*sides, *map(_able, sides))
    return next((b for b in bridges if not _unsafe_in(_check_one(b))), sides[0])


def _able(config: Config) -> Config:
    """Return the configuration, in another client where this one cannot start with it."""
    if not _unsafe_in(_check_one(config)):
        return config
    others = [replace(config, client=other) for other in _INSTEAD.get(config.client, ())]
    if config.client is Client.JAVA and config.version:
        others.append(replace(config, version=max(config.version, COOPERATIVE_JAVA)))
    return next((c for c in others if not _unsafe_in(_check_one(c))), config)


def _unsafe_in(findings: Sequence[UpgradeFinding]) -> list[UpgradeFinding]:
    return [f for f in findings if f.unsafe]


def _check_one(config: Config) -> list[UpgradeFinding]:
    if not config.assignors:
        return [_unsafe("no-assignor", "a member without assignors", "name at least one")]
    findings = []
    cooperative = [a for a in config.assignors if COOPERATIVE in config.rebalance_protocols_of(a)]
    known = KNOWN_TO[config.client]
    unknown = [a for a in config.assignors if not config.knows(a)]
    old_java = config.client is Client.JAVA and () < config.version < COOPERATIVE_JAVA
    if cooperative and (old_java or config.client in (Client.AIOKAFKA, Client.AIOKAFKA_PLUGIN)):
        text = f"{config}: this client has no cooperative assignors"
        advice = "--plan says in which bounce it is exchanged"
        findings.append(_unsafe("client-too-old", text, advice))
    elif unknown:
        text = f"{config}: this client does not have {unknown[0]}"
        advice = f"it has {', '.join(sorted(known))}"
        if config.client in _INSTEAD:
            advice += f"; {_INSTEAD[config.client][-1]} has all"
        findings.append(_unsafe("unknown-to-client", text, advice))
    elif rebalance_protocol_of(config) is None:
        text = f"{config} does not start: its assignors share no rebalance protocol"
        advice = "use holdfast's assignors, whose cooperative ones also run eager"
        if config.client in _INSTEAD:
            advice = f"{_INSTEAD[config.client][0]} takes it; --plan says in which bounce"
        findings.append(_unsafe("cannot-start", text, advice))
    if len(set(config.assignors)) < len(config.assignors):
        text = f"{config}: holdfast and older Java clients refuse an assignor that is named twice"
        findings.append(_unsafe("cannot-start", text, "name each once"))
    return findings


def _unsafe(rule: str, text: str, advice: str) -> UpgradeFinding:
    return UpgradeFinding(unsafe=True, rule=rule, text=text, advice=advice)
