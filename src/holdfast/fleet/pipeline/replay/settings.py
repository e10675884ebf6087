"""The settings to replay a trace under, and the assignors of members under them.

**Rules.** A name of a policy, an assignor or a baseline has its usual meaning
(:mod:`holdfast.core.machine.policy`, :mod:`holdfast.sim.kip848`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.assignors.registry import ASSIGNORS, for_protocol
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.policy import DEFAULTS, POLICIES, Policy, find_policy, policy_of_protocol
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.limits import INT32_MAX
from holdfast.errors import ConfigError
from holdfast.fleet.pipeline.replay.trace import GroupTrace
from holdfast.sim import BASELINES


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Settings to replay a trace under.

    Parameters
    ----------
    policy : str
        A name of :data:`holdfast.core.machine.policy.POLICIES`.
    assignor : str
        Name in the registry.
    delay_ms, batch, interval_ms : int
        As in :class:`holdfast.core.machine.policy.Policy`.
    actual : bool
        Whether the settings are those of the group itself, as far as the records show.
    """

    policy: str
    assignor: str
    delay_ms: int = 0
    batch: int = DEFAULTS.batch
    interval_ms: int = DEFAULTS.interval_ms
    actual: bool = False

    @property
    def defers(self) -> bool:
        """Whether lost partitions are delayed."""
        return self.policy not in BASELINES and find_policy(self.policy).defers

    @property
    def paces(self) -> bool:
        """Whether moves come in batches."""
        return self.policy not in BASELINES and "batch" in find_policy(self.policy).options


def supported_assignors(setting: ReplaySettings) -> tuple[Assignor, ...]:
    """Return the assignors of members under the settings of a policy.

    Raises
    ------
    ConfigError
        A policy or an assignor is unknown, or the two do not go together.
    """
    row = find_policy(setting.policy)
    name: str | None = setting.assignor
    if row.design is None:
        name = for_protocol(setting.assignor, cooperative=row.cooperative)
    if name is None:
        raise ConfigError(f"{setting.assignor} has no cooperative form; use holdfast-simple")
    options = Policy(
        delay_ms=setting.delay_ms, batch=setting.batch, interval_ms=setting.interval_ms
    )
    return assignors_for(setting.policy, options, (name,))


def actual_setting(trace: GroupTrace, default_delay_ms: int) -> tuple[ReplaySettings, str]:
    """Return the settings of the group itself, and a note if they are a guess."""
    protocol, note = trace.protocol or "", ""
    if trace.kip848:
        return ReplaySettings(policy="kip848", assignor=protocol or "uniform", actual=True), ""
    if trace.refused:
        name = "simple" if trace.cooperative else "eager"
        return ReplaySettings(policy=name, assignor=protocol, actual=True), ""
    if trace.imitated_by:
        policy = trace.imitated_by
        assignor = find_policy(policy).assignors[0]
        note = f"its leader is replayed as the nearest policy, {policy}"
    else:
        row = policy_of_protocol(protocol)
        if row is None:
            row = POLICIES["simple" if trace.cooperative else "eager"]
            note = f"the assignor {protocol!r} is not known here: replayed as the nearest one"
        policy, assignor = row.name, protocol if protocol in ASSIGNORS else row.assignors[0]
    made = ReplaySettings(policy=policy, assignor=assignor, actual=True)
    if made.defers and trace.delay_ms < 0:
        return replace(made, delay_ms=default_delay_ms), "the delay is a guess"
    return replace(made, delay_ms=min(trace.delay_ms, INT32_MAX) if made.defers else 0), note
