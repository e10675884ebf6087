"""The one way from a policy, or a list of assignors, to what members offer to their group.

**Rules.** A list holds names of the registry, Java's classes, names of designs, or assignors
themselves. A name stands in a list once. Under a design one assignor of the registry computes
targets. An option goes to the assignors that take it, and to those of all if no assignor offered
takes it.

**Strategy.** :func:`assignors_for` returns what the members of a policy offer; :func:`offered`
returns what a list says, whatever the policy.

References: Incremental Cooperative Rebalancing, Designs I, II and III; KIP-429; KIP-726.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.core.assignors.registry import ASSIGNORS, canonical, check_options, find
from holdfast.core.machine.leader.designs import (
    Assignor,
    CooperativeAssignor,
    DesignAssignor,
    EagerAssignor,
)
from holdfast.core.machine.modes import RebalanceMode
from holdfast.core.machine.policies import DEFAULTS, DESIGNS, find_policy
from holdfast.core.machine.policy import Policy
from holdfast.errors import ConfigError, suggest

Offered = str | Assignor
"""What a list of assignors holds: a name, or an assignor itself."""


def assignors_for(
    name: str, settings: Policy = DEFAULTS, assignors: Sequence[Offered] = ()
) -> tuple[Assignor, ...]:
    """The assignors that a member under a policy offers, in order of preference.

    Parameters
    ----------
    name : str
        One of :data:`~holdfast.core.machine.policies.POLICIES`, or an assignor of the registry.
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
        Names of the registry, Java's classes, names of
        :data:`~holdfast.core.machine.policies.DESIGNS`, or assignors themselves.
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
