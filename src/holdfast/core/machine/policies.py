"""Every rebalance policy, one row each.

**Rules.** A policy is a name for the protocols that a member supports: assignors in Kafka's own
protocols, or a design in holdfast's protocol. ``Consumer``, ``Worker``, the assignors for stock
clients, ``simulate``, ``replay``, the search and random runs all read this table, so one name means
one protocol, and a default has one value, everywhere.

- ``simple`` is Design I as Kafka's own ``cooperative-sticky``. Design I in holdfast's own protocol
  has the name of that protocol, ``holdfast-simple``.
- An assignor's name is a policy too: that of ``eager`` or ``simple``, with this assignor.
- ``failback`` is Design II in which a departed member's partitions are temporarily reassigned until
  it is back. Its members use the protocol of Design II, and the leader's policy counts.
- ``damped`` uses the protocol of Design II as well. Nothing waits under it.
- A user's own policy is a row too, which :func:`holdfast.policy` makes; it is accepted wherever a
  name is.
- The defaults of a design's options are those of :class:`~holdfast.core.machine.policy.Policy`.

**Strategy.** :func:`find_policy` returns the row of a name. The rows name protocols and make no
assignors: :mod:`holdfast.core.machine.supported_protocols` does, and loads the leader's code.

References: Incremental Cooperative Rebalancing, Designs I, II and III; KIP-429; KIP-726.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from holdfast.core.assignors.registry import ASSIGNORS, canonical
from holdfast.core.machine.policy import Policy
from holdfast.core.model.designs import NAMES, Design
from holdfast.errors import ConfigError, suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """One policy."""

    name: str  # name of the command line and of ``holdfast.policy``
    title: str  # name in tables of measurements
    summary: str  # one line for people
    # The design that members use in holdfast's protocol; None: Kafka's own protocols.
    design: Design | None = None
    # Assignors of the registry that a member supports unless it names others. A design supports
    # itself, and its one assignor computes targets.
    assignors: tuple[str, ...] = ("cooperative-sticky",)
    cooperative: bool = True  # whether members keep processing during a round
    failback: bool = False  # whether a departed member's partitions are temporarily reassigned
    damps: bool = False  # whether members that joined recently wait for partitions
    # Fields of :class:`~holdfast.core.machine.policy.Policy` that change what the policy does.
    options: tuple[str, ...] = ()
    # The policy that ``holdfast.Worker`` runs under this name, "" if it refuses the name. A
    # worker's resources have kinds and weights, which only holdfast's protocol carries.
    worker: str = ""
    # The function of a user's own policy (:mod:`holdfast.core.machine.own_policy`), from an
    # ``Imbalance`` to a ``Resolution``; and how long a leader waits for it.
    resolver: Callable[..., object] | None = None
    timeout_ms: int = 0

    @property
    def protocols(self) -> tuple[str, ...]:
        """Names of the protocols that a member supports by default, in order of preference."""
        return self.assignors if self.design is None else (NAMES[self.design],)

    @property
    def defers(self) -> bool:
        """Whether partitions of a departed member wait for its return."""
        return "delay_ms" in self.options and not self.failback


DESIGNS: Mapping[str, Design] = MappingProxyType({name: design for design, name in NAMES.items()})
"""Protocol names of the designs, which a list of assignors may contain beside assignors."""

DEFAULTS = Policy()
"""The default of every option of every design."""

_WAITS = ("delay_ms", "first_member", "first_member_delay_ms")

_ROWS: dict[str, PolicyInfo] = {
    info.name: info
    for info in (
        PolicyInfo(
            name="eager",
            title="eager, range",
            summary="every member revokes everything in every rebalance",
            assignors=("range",),
            cooperative=False,
        ),
        PolicyInfo(
            name="eager-sticky",
            title="eager, sticky",
            summary="eager, but most partitions come back to the member that gave them up",
            assignors=("sticky",),
            cooperative=False,
        ),
        PolicyInfo(
            name="simple",
            title="Design I, as cooperative-sticky (KIP-429)",
            summary="Design I: moving partitions are revoked first, all others continue",
            worker="holdfast-simple",
        ),
        PolicyInfo(
            name="holdfast-simple",
            title="Design I, as holdfast-simple",
            summary="Design I in holdfast's own protocol: any assignor, kinds and weights",
            design=Design.SIMPLE,
            worker="holdfast-simple",
        ),
        PolicyInfo(
            name="deferred",
            title="Design II",
            summary="Design II: partitions of a departed member wait a delay for its return",
            design=Design.DEFERRED,
            options=(*_WAITS, "successor_delay_ms"),
            worker="deferred",
        ),
        PolicyInfo(
            name="incremental",
            title="Design III",
            summary="Design III: Design II, and moves in small batches with pauses between them",
            design=Design.INCREMENTAL,
            options=(*_WAITS, "successor_delay_ms", "batch", "group_batch", "interval_ms"),
            worker="incremental",
        ),
        PolicyInfo(
            name="failback",
            title="Failback",
            summary="as simple, and a member that is back in time gets its partitions back",
            design=Design.DEFERRED,
            failback=True,
            options=_WAITS,
            worker="failback",
        ),
        PolicyInfo(
            name="damped",
            title="Damped",
            summary="as simple, and a new member gets partitions of others after it has stayed",
            design=Design.DEFERRED,
            damps=True,
            options=("first_member", "first_member_delay_ms", "stabilization_ms"),
            worker="damped",
        ),
    )
}

POLICIES: Mapping[str, PolicyInfo] = MappingProxyType(_ROWS)
"""Every policy by name.

Random runs (``tests/proof``) draw from it by position: a new row goes to the end, or every seed
means another run.
"""


def find_policy(name: str | PolicyInfo) -> PolicyInfo:
    """Return the row of a policy; for an assignor that of its protocol, with the assignor."""
    if isinstance(name, PolicyInfo):
        return name
    if name in POLICIES:
        return POLICIES[name]
    if (own := canonical(name)) not in ASSIGNORS:
        known = (*POLICIES, *ASSIGNORS)
        raise ConfigError(f"unknown policy {name!r}; {suggest(name, known, 2)}")
    info = ASSIGNORS[own]
    row = POLICIES["simple" if info.cooperative else "eager"]
    return replace(row, name=own, title=own, summary=info.summary, assignors=(own,))


def worker_policy(policy: str | PolicyInfo) -> PolicyInfo | None:
    """Return the policy that ``holdfast.Worker`` runs under a name; None if it refuses the name."""
    row = find_policy(policy)
    return row if row.resolver is not None else POLICIES.get(row.worker)


def check_known(name: str, option: str) -> None:
    """Refuse a name that is neither a policy nor an assignor that a policy supports by default."""
    by_default = {info.protocols for info in POLICIES.values()}
    own = canonical(name)
    if name not in POLICIES and (own not in ASSIGNORS or (own,) not in by_default):
        known = ", ".join(POLICIES)
        raise ConfigError(f"{option}: found {name!r}, which is not one of the expected {known}")


def policy_of_protocol(protocol: str) -> PolicyInfo | None:
    """Return the policy whose members support a protocol; None for other software's protocol."""
    for info in POLICIES.values():
        if info.design is not None and protocol in info.protocols:
            return info
    if protocol not in ASSIGNORS:
        return None
    return POLICIES["simple" if ASSIGNORS[protocol].cooperative else "eager"]
