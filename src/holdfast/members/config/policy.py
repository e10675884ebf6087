"""The policy and the assignors that a member's settings mean, and its machine.

**Rules.** ``holdfast.policy`` names a policy (:mod:`holdfast.core.machine.policy`), and
``partition.assignment.strategy`` lists assignors and protocols of designs. Every entry of the list
is sent to the group, in order, so each step of KIP-429's two rolling bounces can be configured.
Under the policy of a design only one assignor computes targets. A policy and a list that contradict
each other are refused.

The location of a member is unique to its process, and the same after a restart.
``holdfast.location`` sets it. Without the key it consists of the host name, ``client.id``, and the
name that a supervisor gives the process: each is the same after a restart, and different for each
process that the supervisor runs. On Kubernetes the host is the pod; only a pod with the network of
its node has the node's name, and there ``POD_NAME`` from the downward API distinguishes pods of one
node. Process ids and container ids are not used: both change.

References: KIP-429; KIP-726; Incremental Cooperative Rebalancing, "Member bounces";
systemd.unit(5), templates.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from holdfast.core.assignors.registry import find
from holdfast.core.machine.leader.assignor_protocol import Assignor, choose_rebalance_protocol
from holdfast.core.machine.leader.designs import DesignAssignor, why_no_target
from holdfast.core.machine.leader.subscriptions import digest_of
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.member_data import LAST_COMMIT_MS, MemberOptions
from holdfast.core.machine.policy import (
    DEFAULTS,
    DESIGNS,
    Policy,
    When,
    worker_policy,
)
from holdfast.core.machine.supported_protocols import (
    assignors_for,
    check_agreement,
    computes,
    of_group,
    supported_assignors,
)
from holdfast.core.model.constants import INT32_MAX
from holdfast.errors import ConfigError
from holdfast.members.config.own_assignors import design_of
from holdfast.members.config.settings import OF_WORKERS, Settings

_POLL, _DRAIN = "max.poll.interval.ms", "holdfast.drain.timeout.ms"


def policy_of(settings: Settings) -> Policy:
    """Return the options of a design.

    One assignor of the registry, or of the user, computes targets:
    ``holdfast.target.assignor``, or the only entry of ``partition.assignment.strategy``.
    """
    listed = settings.listed
    alone = listed[0] if len(listed) == 1 else DEFAULTS.assignor
    weights = {
        kind: own["weight"] for kind, own in settings["holdfast.kinds"].items() if "weight" in own
    }
    policy = Policy(
        delay_ms=settings["scheduled.rebalance.max.delay.ms"],
        first_member=When(settings["holdfast.first.member"]),
        first_member_delay_ms=settings["holdfast.first.member.delay.ms"],
        successor_delay_ms=settings["holdfast.successor.delay.ms"],
        batch=settings["holdfast.incremental.batch"],
        group_batch=settings["holdfast.incremental.group.batch"],
        interval_ms=settings["holdfast.incremental.interval.ms"],
        stabilization_ms=settings["holdfast.damped.stabilization.ms"],
        assignor=settings.target or (alone if computes(alone) else DEFAULTS.assignor),
        options=settings["holdfast.assignor.options"],
        leader_state_limit_bytes=settings["holdfast.leader.state.limit.bytes"],
        record_limit_bytes=settings["holdfast.record.limit.bytes"],
        isolate=bool(settings["holdfast.isolate"]),
        weights=weights,
        kinds=settings.kinds,
    )
    if policy.isolate or policy.weights:
        _check_targets(policy)
    return policy


def _check_targets(policy: Policy) -> None:
    """Refuse weights and isolation with an assignor that would ignore them."""
    assignor = find(policy.assignor)
    if not isinstance(policy.assignor, str):
        raise ConfigError(
            f"assignor {assignor.name}: it alone decides the assignment, and takes no "
            "holdfast.isolate and no weights"
        )
    if assignor.uses_lags and policy.weights:
        raise ConfigError(f"holdfast.kinds: {assignor.name} balances by lag, and takes no weights")


def assignors_of(settings: Settings) -> tuple[Assignor, ...]:
    """Return the assignors that a consumer supports, in order of preference.

    Raises
    ------
    ConfigError
        For an unknown name, or for a list that contradicts ``holdfast.policy`` or that has no
        rebalance protocol in common; for a key of workers.
    """
    for key in sorted(settings.given.intersection(OF_WORKERS)):
        raise ConfigError(f"{key}: only a Worker has work to start and to stop")
    listed, row, policy = settings.listed, settings.policy, policy_of(settings)
    if not listed or "holdfast.policy" in settings.given:
        assignors = assignors_for(row, policy, listed)
        if listed:
            check_agreement(row.name, assignors)
    else:
        assignors = supported_assignors(listed, policy)
    choose_rebalance_protocol(assignors)
    for key in ("holdfast.kinds", "holdfast.isolate"):
        if settings[key] and not any(isinstance(a, DesignAssignor) for a in assignors):
            raise ConfigError(
                f"{key}: only the leader of a design treats topics by themselves: set "
                "holdfast.policy to deferred or incremental"
            )
    if "holdfast.clean.leave" in settings.given:
        check_leave(settings, assignors)
    group: str = settings["group.id"]
    return tuple(of_group(a, group) for a in assignors)


def check_leave(settings: Settings, assignors: Sequence[Assignor]) -> None:
    """Refuse ``holdfast.clean.leave=deferred`` if the group never waits for a departed member.

    Such a group always behaves as for ``immediate``. For a static member the key says whether it
    stays in its group until its session ends.
    """
    is_honoured = settings["group.instance.id"] is not None or any(map(_carries_state, assignors))
    if settings.returns and not is_honoured:
        raise ConfigError(
            "holdfast.clean.leave: found deferred, but no member waits for one that left: set "
            "holdfast.policy to deferred, incremental or failback, or give a group.instance.id"
        )


def worker_assignors(settings: Settings, resources: Mapping[str, int]) -> tuple[Assignor, ...]:
    """Return the assignors that a worker supports under its policy."""
    design_of(settings.policy, "holdfast.policy: a worker")
    for kind in settings["holdfast.kinds"]:
        if kind not in resources:
            raise ConfigError(
                f"holdfast.kinds: {kind}: not one of the resources {', '.join(sorted(resources))}"
            )
    listed, policy = settings.listed, policy_of(settings)
    if settings["holdfast.isolate"] is None:
        policy = replace(policy, isolate=not policy.weights)
    # Only members read the assignments of this protocol type.
    policy = replace(policy, omit_unchanged=True)
    own = worker_policy(settings.policy) or settings.policy
    if find(policy.assignor).uses_lags and isinstance(settings["holdfast.lag.source"], str):
        raise ConfigError(
            f"holdfast.lag.source: under {find(policy.assignor).name} a worker takes a function "
            "from kinds and counts to the load of each resource"
        )
    named = [a for a in listed if isinstance(a, str)]
    if not listed or (len(listed) == 1 and computes(listed[0])):
        others = [
            name
            for name, design in DESIGNS.items()
            if name not in own.protocols and not why_no_target(replace(policy, design=design))
        ]
        return assignors_for(own, policy, (*own.protocols, *others))
    if kafkas := [a for a in named if a not in DESIGNS]:
        raise ConfigError(
            f"partition.assignment.strategy: a worker supports {', '.join(DESIGNS)}, or takes one "
            f"assignor that computes its targets; found {kafkas[0]} in a list"
        )
    is_named = "holdfast.policy" in settings.given
    assignors = (
        assignors_for(own, policy, listed) if is_named else supported_assignors(listed, policy)
    )
    choose_rebalance_protocol(assignors)
    return assignors


def make_member(
    settings: Settings, assignors: Sequence[Assignor], *, is_worker: bool = False
) -> Member:
    """Return a machine that has not started.

    The group of a worker has the protocol type ``holdfast``, so tools for consumer groups leave it
    alone, and its application neither polls nor commits.
    """
    poll_ms: int = settings["max.poll.interval.ms"]
    beat_ms: int = settings["heartbeat.interval.ms"]
    drain_ms: int | None = settings["holdfast.drain.timeout.ms"]
    is_shorter = drain_ms is not None and drain_ms < poll_ms
    drain = _DRAIN if is_shorter else _POLL
    options = MemberOptions(
        protocol_type="holdfast" if is_worker else "consumer",
        instance_id=settings["group.instance.id"],
        rack=settings["client.rack"] or None,
        session_timeout_ms=settings["session.timeout.ms"],
        heartbeat_interval_ms=beat_ms,
        # A round begins up to a heartbeat before the member is notified, and ends for the member
        # with its last commit. A shorter time would expel a member that is in time.
        rebalance_timeout_ms=min(poll_ms + beat_ms + LAST_COMMIT_MS, INT32_MAX),
        max_poll_interval_ms=0 if is_worker else poll_ms,
        drain_timeout_ms=max(1, settings[drain]),
        drain_setting=settings.user_name(drain),
        poll_setting=settings.user_name(_POLL),
        request_timeout_ms=settings["request.timeout.ms"],
        retry_backoff_ms=max(1, settings["retry.backoff.ms"]),
        retry_backoff_max_ms=max(1, settings["retry.backoff.max.ms"]),
        error_timeout_ms=settings["holdfast.error.timeout.ms"],
        auto_commit=not is_worker and settings["enable.auto.commit"],
        announce_leave=frozenset(a.name for a in assignors if _carries_state(a)),
        location=location_of(settings),
    )
    return Member(assignors, options)


def _carries_state(assignor: Assignor) -> bool:
    """Return whether an assignor's leader keeps state, and so waits for departed members."""
    return isinstance(assignor, DesignAssignor) and assignor.policy.carries_state


_NAMES = ("POD_NAME", "SUPERVISOR_PROCESS_NAME", "NOMAD_ALLOC_NAME", "DYNO")
"""Variables with a name that is the same after a restart: Kubernetes's downward API (as in its
documentation), supervisord, Nomad, Heroku.
"""
_UNIT = re.compile(r"/([^/]+\.service)$")
_CGROUPS = Path("/proc/self/cgroup")


def location_of(settings: Settings) -> bytes:
    """Return the digest of a member's location, from the key or by default."""
    given: str | None = settings["holdfast.location"]
    if given:
        return digest_of(given)
    return digest_of(socket.gethostname(), settings["client.id"], *supervisor_names(os.environ))


def supervisor_names(environ: Mapping[str, str], cgroups: Path = _CGROUPS) -> tuple[str, ...]:
    """Return the names that a supervisor has given this process, none without a supervisor.

    Parameters
    ----------
    environ : mapping of str to str
        The environment variables of the process.
    cgroups : Path
        The file in which Linux lists the cgroups, and so the systemd service, of the process.
    """
    names = [f"{name}={value}" for name in _NAMES if (value := environ.get(name))]
    with suppress(OSError):  # not Linux, or no permission to read
        lines = cgroups.read_text(errors="replace").splitlines()
        names += sorted({unit[1] for line in lines if (unit := _UNIT.search(line))})
    return tuple(names)
