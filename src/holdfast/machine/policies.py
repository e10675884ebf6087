"""Every rebalance policy, one row each, and the one way from a policy to what members offer.

**Rules.** A policy is a name for what a member offers to its group: assignors in Kafka's own
protocols, or a design in holdfast's protocol. ``Consumer``, ``Worker``, the assignors for stock
clients, ``simulate``, ``replay``, the search and random runs all read this table, so one name means
one protocol, and a default has one value, everywhere.

- ``simple`` is Design I as Kafka's own ``cooperative-sticky``. Design I in holdfast's own protocol
  has the name of that protocol, ``holdfast-simple``.
- An assignor's name is a policy too: that of ``eager`` or ``simple``, with this assignor.
- The defaults of a design's options are those of :class:`~holdfast.machine.policy.Policy`.

**Strategy.** :func:`find_policy` returns the row of a name. :func:`assignors_for` returns what the
members of a policy offer; :func:`offered` returns what a list says, whatever the policy.

References: Incremental Cooperative Rebalancing, Designs I, II and III; KIP-429; KIP-726.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from holdfast.assignors.registry import ASSIGNORS, canonical, check_options, find
from holdfast.errors import ConfigError, suggest
from holdfast.machine.leader.designs import (
    NAMES,
    Assignor,
    CooperativeAssignor,
    DesignAssignor,
    EagerAssignor,
)
from holdfast.machine.leader.embedded import RebalanceMode
from holdfast.machine.policy import Policy
from holdfast.wire.layouts.incremental import Design


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """One policy.

    Parameters
    ----------
    name : str
        Name of the command line and of ``holdfast.policy``.
    title : str
        Name in tables of measurements.
    summary : str
        One line for people.
    needs : str
        What a group must have before it can run the policy.
    design : Design, optional
        The design that members speak in holdfast's protocol; None: Kafka's own protocols.
    assignors : tuple of str
        Assignors of the registry that a member offers unless it names others. A design offers
        itself, and its one assignor computes targets.
    cooperative : bool
        Whether members go on with their partitions during a round.
    options : tuple of str
        Fields of :class:`~holdfast.machine.policy.Policy` that change what the policy does.
    worker : str
        The policy that ``holdfast.Worker`` runs under this name, "" if it refuses the name. A
        worker's resources have kinds and weights, which only holdfast's protocol carries.
    """

    name: str
    title: str
    summary: str
    needs: str
    design: Design | None = None
    assignors: tuple[str, ...] = ("cooperative-sticky",)
    cooperative: bool = True
    options: tuple[str, ...] = ()
    worker: str = ""

    @property
    def protocols(self) -> tuple[str, ...]:
        """Protocol names that a member offers by default, in order of preference."""
        return self.assignors if self.design is None else (NAMES[self.design],)

    @property
    def defers(self) -> bool:
        """Whether partitions of a member that left wait for its return."""
        return "delay_ms" in self.options


Offered = str | Assignor
"""What a list of assignors holds: a name, or an assignor itself."""

DESIGNS: Mapping[str, Design] = MappingProxyType({name: design for design, name in NAMES.items()})
"""Protocol names of the designs, which a list of assignors may hold beside those of others."""

DEFAULTS = Policy()
"""The default of every option of every design."""

_WAITS = ("delay_ms", "first_member", "first_member_delay_ms", "clean_leave")
_ANY_CLIENT = "any client that has the assignor"
_HOLDFAST_ONLY = "every member of the group runs holdfast"

_ROWS: dict[str, PolicyInfo] = {
    info.name: info
    for info in (
        PolicyInfo(
            name="eager",
            title="eager, range",
            summary="everybody gives up everything in every rebalance",
            needs=_ANY_CLIENT,
            assignors=("range",),
            cooperative=False,
        ),
        PolicyInfo(
            name="eager-sticky",
            title="eager, sticky",
            summary="eager, but most partitions come back to the member that gave them up",
            needs=_ANY_CLIENT,
            assignors=("sticky",),
            cooperative=False,
        ),
        PolicyInfo(
            name="simple",
            title="Design I, as cooperative-sticky (KIP-429)",
            summary="Design I: what moves is given up first, everything else goes on",
            needs=_ANY_CLIENT,
            worker="holdfast-simple",
        ),
        PolicyInfo(
            name="holdfast-simple",
            title="Design I, as holdfast-simple",
            summary="Design I in holdfast's own protocol: any assignor, kinds and weights",
            needs=_HOLDFAST_ONLY,
            design=Design.SIMPLE,
            worker="holdfast-simple",
        ),
        PolicyInfo(
            name="deferred",
            title="Design II",
            summary="Design II: what a member leaves behind waits a delay for its return",
            needs=_HOLDFAST_ONLY,
            design=Design.DEFERRED,
            options=_WAITS,
            worker="deferred",
        ),
        PolicyInfo(
            name="incremental",
            title="Design III",
            summary="Design III: Design II, and moves in small batches with pauses between them",
            needs=_HOLDFAST_ONLY,
            design=Design.INCREMENTAL,
            options=(*_WAITS, "batch", "interval_ms"),
            worker="incremental",
        ),
    )
}

POLICIES: Mapping[str, PolicyInfo] = MappingProxyType(_ROWS)
"""Every policy by name. Random runs draw from it by position: a new row goes to the end, or every
seed of ``simulate-soak`` stands for another run."""


def find_policy(name: str) -> PolicyInfo:
    """The row of a policy; for an assignor the row of its mode, with this assignor.

    Raises
    ------
    ConfigError
        The name is neither a policy nor an assignor.
    """
    if name in POLICIES:
        return POLICIES[name]
    if (own := canonical(name)) not in ASSIGNORS:
        known = (*POLICIES, *ASSIGNORS)
        raise ConfigError(f"unknown policy {name!r}; {suggest(name, known, 2)}")
    info = ASSIGNORS[own]
    row = POLICIES["simple" if info.cooperative else "eager"]
    return replace(row, name=own, title=own, summary=info.summary, assignors=(own,))


def check_known(name: str, option: str) -> None:
    """Refuse a name that is neither a policy nor an assignor that a policy offers by default.

    Raises
    ------
    ConfigError
        With ``option``, for which the name was given.
    """
    by_default = {info.protocols for info in POLICIES.values()}
    own = canonical(name)
    if name not in POLICIES and (own not in ASSIGNORS or (own,) not in by_default):
        known = ", ".join(POLICIES)
        raise ConfigError(f"{option}: found {name!r}, which is not one of the expected {known}")


def policy_of_protocol(protocol: str) -> PolicyInfo | None:
    """The policy whose members offer this protocol; None for a protocol of other software."""
    for info in POLICIES.values():
        if info.design is not None and protocol in info.protocols:
            return info
    if protocol not in ASSIGNORS:
        return None
    return POLICIES["simple" if ASSIGNORS[protocol].cooperative else "eager"]


def assignors_for(
    name: str, settings: Policy = DEFAULTS, assignors: Sequence[Offered] = ()
) -> tuple[Assignor, ...]:
    """The assignors that a member under a policy offers, in order of preference.

    Parameters
    ----------
    name : str
        One of :data:`POLICIES`, or an assignor of the registry.
    settings : Policy
        Options of the design, and of the assignors; its design is replaced by the policy's.
    assignors : sequence of str or Assignor
        What to offer instead of the policy's own, as for :func:`offered`. Under a design one
        assignor of the registry computes targets, and a list names the design itself as well.

    Raises
    ------
    ConfigError
        An unknown name or option, or assignors that do not go with the policy.
    """
    info = find_policy(name)
    if info.design is None:
        made = offered(assignors or info.assignors, settings)
        if not info.cooperative and any(RebalanceMode.COOPERATIVE in a.modes for a in made):
            raise _contradiction(
                name, made, "needs holdfast.policy=simple, or none: some go on in a round"
            )
        return made
    if not assignors:
        return offered(info.protocols, settings)
    (first, *others) = assignors
    if not others and isinstance(first, str) and first not in DESIGNS:
        return offered(info.protocols, replace(settings, assignor=find(first).name))
    made = offered(assignors, settings)
    if info.protocols[0] not in {a.name for a in made}:
        raise _contradiction(
            name,
            made,
            f"lacks {info.protocols[0]}: holdfast.policy={name} takes one assignor that computes "
            f"its targets, or a list with {info.protocols[0]} in it",
        )
    return made


def offered(assignors: Sequence[Offered], settings: Policy = DEFAULTS) -> tuple[Assignor, ...]:
    """The assignors of a list, as a member offers them, in order of preference.

    Parameters
    ----------
    assignors : sequence of str or Assignor
        Names of the registry, Java's classes, names of :data:`DESIGNS`, or assignors themselves.
    settings : Policy
        Settings of every design in the list, and options of the assignors.

    Raises
    ------
    ConfigError
        An unknown name or option, or a name that is there twice.

    References: KIP-726, "Upgrade path": a list offers the old and the new protocol.
    """
    named = [canonical(a) if isinstance(a, str) else a for a in assignors]
    protocols = [a if isinstance(a, str) else a.name for a in named]
    if twice := sorted({p for p in protocols if protocols.count(p) > 1}):
        raise ConfigError(f"partition.assignment.strategy: {twice[0]} is named twice")
    target = find(settings.assignor).name
    computing = [target if a in DESIGNS else a for a in named if isinstance(a, str)]
    made: list[Assignor] = []
    for a in named:
        if not isinstance(a, str):
            made.append(a)
        elif a in DESIGNS:
            options = check_options(target, _own_options(target, computing, settings.options))
            design = replace(settings, design=DESIGNS[a], assignor=target, options=options)
            made.append(DesignAssignor(design))
        elif a in ASSIGNORS:
            made.append(assignor_of(a, _own_options(a, computing, settings.options)))
        else:
            raise ConfigError(f"unknown assignor {a!r}; {suggest(a, (*ASSIGNORS, *DESIGNS), 3)}")
    return tuple(made)


def check_agreement(name: str, assignors: Sequence[Assignor]) -> None:
    """Refuse a policy and a list of assignors that were both configured and differ.

    Raises
    ------
    ConfigError
        ``simple`` with eager assignors alone, or ``eager-sticky`` with assignors without claims.
    """
    if name == "simple" and not any(RebalanceMode.COOPERATIVE in a.modes for a in assignors):
        text = "runs eager; leave holdfast.policy out, or take holdfast-simple for its targets"
        raise _contradiction(name, assignors, text)
    if name == "eager-sticky" and not any(
        a.name in ASSIGNORS and ASSIGNORS[a.name].uses_claims for a in assignors
    ):
        raise _contradiction(name, assignors, "keeps nothing; needs holdfast.policy=eager, or none")


def _contradiction(name: str, assignors: Sequence[Assignor], why: str) -> ConfigError:
    listed = ", ".join(a.name for a in assignors)
    return ConfigError(
        f"holdfast.policy={name} contradicts partition.assignment.strategy: {listed} {why}"
    )


def assignor_of(name: str, options: Mapping[str, object] | None = None) -> Assignor:
    """An assignor of the registry as members offer it, cooperative or eager by its row.

    Raises
    ------
    ConfigError
        An unknown assignor or option.
    """
    info = find(name)
    checked = check_options(info.name, options or {})
    if info.cooperative:
        return CooperativeAssignor(name=info.name, options=checked)
    return EagerAssignor(info.name, checked)


def of_group(assignor: Assignor, group_id: str) -> Assignor:
    """The assignor, with the group's id where its last tie-break takes one and none was given.

    References: KAFKA-5337 (two groups load different members).
    """
    if not isinstance(assignor, EagerAssignor) or not lacks_group(assignor):
        return assignor
    return replace(assignor, options={**assignor.options, "group_id": group_id})


def lacks_group(assignor: Assignor) -> bool:
    """Whether the last tie-break of the assignor takes the group's id, and none was given.

    References: KAFKA-5337 (two groups load different members).
    """
    if not isinstance(assignor, EagerAssignor) or assignor.name not in ASSIGNORS:
        return False
    return "group_id" in find(assignor.name).options and "group_id" not in assignor.options


def _own_options(
    name: str, names: Sequence[str], options: Mapping[str, object]
) -> dict[str, object]:
    """The options that this assignor takes, and those that no offered assignor takes."""
    others = {
        option
        for other in names
        if other != name and other in ASSIGNORS
        for option in find(other).options
    }
    own = find(name).options
    return {o: value for o, value in options.items() if o in own or o not in others}
