"""The one way from a policy, or a list of assignors, to the protocols that members support.

**Rules.** A list holds names of the registry, Java's classes, names of designs, rows of a user's
own assignors, or assignors themselves. A list has a name once. Under a design one assignor of the
registry, or of the user, computes targets. An option goes to the assignors that take it, and to all
assignors if none of the list takes it.

**Strategy.** :func:`assignors_for` returns the assignors that the members of a policy support;
:func:`supported_assignors` returns those of a list, whatever the policy.

References: Incremental Cooperative Rebalancing, Designs I, II and III; KIP-429; KIP-726.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from holdfast.core.assignors.registry import (
    ASSIGNORS,
    AssignorInfo,
    Named,
    canonical,
    check_options,
    find,
    unknown,
)
from holdfast.core.machine.leader.assignor_protocol import Assignor, RebalanceProtocol
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor, EagerAssignor
from holdfast.core.machine.policy import DEFAULTS, DESIGNS, Policy, PolicyInfo, find_policy
from holdfast.errors import ConfigError

AssignorSpec = Named | Assignor
"""An entry of a list of assignors: a name, a user's row, or an assignor itself."""


def assignors_for(
    policy: str | PolicyInfo, settings: Policy = DEFAULTS, assignors: Sequence[AssignorSpec] = ()
) -> tuple[Assignor, ...]:
    """Return the assignors that a member under a policy supports, in order of preference.

    Parameters
    ----------
    policy : str or PolicyInfo
        One of :data:`~holdfast.core.machine.policy.POLICIES`, an assignor of the registry, or
        what :func:`holdfast.policy` returned.
    settings : Policy
        Options of the design, and of the assignors; the policy says which design, and whether
        partitions fail back.
    assignors : sequence of str, AssignorInfo or Assignor
        Assignors instead of the policy's own, as for :func:`supported_assignors`. Under a design
        one assignor of the registry, or of the user, computes targets, and a list names the design
        itself as well.

    Raises
    ------
    ConfigError
        An unknown name or option, or assignors that do not fit the policy.
    """
    info = policy if isinstance(policy, PolicyInfo) else find_policy(policy)
    name = info.name
    if info.design is None:
        made = supported_assignors(assignors or info.assignors, settings)
        if not info.cooperative and any(
            RebalanceProtocol.COOPERATIVE in a.rebalance_protocols for a in made
        ):
            raise _contradiction(
                name,
                made,
                "needs holdfast.policy=simple, or none: a cooperative one is in the list",
            )
        return made
    own = None if info.resolver is None else info
    settings = replace(settings, failback=info.failback, damps=info.damps, own=own)
    if not assignors:
        return supported_assignors(info.protocols, settings)
    (first, *others) = assignors
    if not others and computes(first):
        return supported_assignors(
            info.protocols, replace(settings, assignor=_name_of(find(first)))
        )
    made = supported_assignors(assignors, settings)
    if info.protocols[0] not in {a.name for a in made}:
        raise _contradiction(
            name,
            made,
            f"lacks {info.protocols[0]}: holdfast.policy={name} takes one assignor that computes "
            f"its targets (cooperative-sticky if none is named), or a list with "
            f"{info.protocols[0]} in it",
        )
    return made


def supported_assignors(
    assignors: Sequence[AssignorSpec], settings: Policy = DEFAULTS
) -> tuple[Assignor, ...]:
    """Return the assignors of a list, as a member supports them, in order of preference.

    Parameters
    ----------
    assignors : sequence of str, AssignorInfo or Assignor
        Names of the registry, Java's classes, names of
        :data:`~holdfast.core.machine.policy.DESIGNS`, rows of a user's own assignors, or
        assignors themselves.
    settings : Policy
        Settings of every design in the list, and options of the assignors.

    References: KIP-726, "Upgrade path": a list names the old and the new protocol.
    """
    named = [canonical(a) if isinstance(a, str) else a for a in assignors]
    protocols = [a if isinstance(a, str) else a.name for a in named]
    if twice := sorted({p for p in protocols if protocols.count(p) > 1}):
        raise ConfigError(f"partition.assignment.strategy: {twice[0]} is named twice")
    rows: list[AssignorInfo] = []  # of every entry that is not an assignor itself
    for a in named:
        if isinstance(a, str) and a not in ASSIGNORS and a not in DESIGNS:
            raise unknown(a, DESIGNS)
        if isinstance(a, str):
            rows.append(find(settings.assignor) if a in DESIGNS else ASSIGNORS[a])
        elif isinstance(a, AssignorInfo):
            rows.append(a)
    made: list[Assignor] = []
    left = iter(rows)
    for a in named:
        if not isinstance(a, str | AssignorInfo):
            made.append(a)
            continue
        row = next(left)
        options = _own_options(row, rows, settings.options) if settings.options else {}
        if isinstance(a, str) and a in DESIGNS:
            checked = check_options(row, options)
            own = replace(settings, design=DESIGNS[a], assignor=_name_of(row), options=checked)
            made.append(DesignAssignor(own))
        else:
            made.append(assignor_of(row, options))
    return tuple(made)


def check_agreement(name: str, assignors: Sequence[Assignor]) -> None:
    """Refuse a policy and a list of assignors that were both configured and differ."""
    if name == "simple" and not any(
        RebalanceProtocol.COOPERATIVE in a.rebalance_protocols for a in assignors
    ):
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


def computes(spec: AssignorSpec) -> TypeGuard[Named]:
    """Return whether an entry computes a design's targets: it is neither a design nor in bytes."""
    return isinstance(spec, AssignorInfo) or (isinstance(spec, str) and spec not in DESIGNS)


def _name_of(row: AssignorInfo) -> Named:
    """Return the name of an assignor of the registry; the row itself of a user's own."""
    return row.name if row.name in ASSIGNORS else row


def assignor_of(name: Named, options: Mapping[str, object] | None = None) -> Assignor:
    """Return a registry's or user's assignor as members support it, in its rebalance protocol."""
    info = name if isinstance(name, AssignorInfo) else find(name)
    checked = check_options(info, options) if options else {}
    own = None if info.name in ASSIGNORS else info
    if info.cooperative:
        return CooperativeAssignor(name=info.name, options=checked, own=own)
    return EagerAssignor(info.name, checked, own=own)


def of_group(assignor: Assignor, group_id: str) -> Assignor:
    """Return the assignor, with the group's id if its last tie-break takes one and none was given.

    References: KAFKA-5337 (two groups load different members).
    """
    if not isinstance(assignor, EagerAssignor) or not lacks_group(assignor):
        return assignor
    return replace(assignor, options={**assignor.options, "group_id": group_id})


def lacks_group(assignor: Assignor) -> bool:
    """Return whether the assignor's last tie-break takes the group's id, and none was given.

    References: KAFKA-5337 (two groups load different members).
    """
    if not isinstance(assignor, EagerAssignor):
        return False
    return "group_id" in assignor.row.options and "group_id" not in assignor.options


def _own_options(
    row: AssignorInfo, rows: Sequence[AssignorInfo], options: Mapping[str, object]
) -> dict[str, object]:
    """Return the options that an assignor takes, and those that no assignor of the list takes."""
    others = {o for other in rows if other is not row for o in other.options}
    return {o: value for o, value in options.items() if o in row.options or o not in others}
