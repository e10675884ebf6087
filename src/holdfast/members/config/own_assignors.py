"""Assignors and policies that users name: of the tables, of a design, of Java, or their own.

**Rules.** A name of the registry or of a design, or a Java class, stays a name. Any other name with
a dot or a colon is an object of the user, ``package.module:name``. The named object, or an object
given directly, is one of:

- an assignor that :func:`holdfast.assignor` made;
- a function of members, topics and claims, which becomes an assignor with the function's name;
- a factory: a class, or a function without required parameters. It is called for each client;
- an object with everything in :class:`~holdfast.core.machine.leader.assignor_protocol.Assignor`,
  which reads and writes the bytes of its protocol.

A policy is a name of the table, ``module:name``, a result of :func:`holdfast.policy`, or a function
of an imbalance, which becomes a policy with the function's name.

A live leader waits for a function of the user no longer than its ``timeout_ms``; a late plan counts
as failed.

**Strategy.** The settings of a member are resolved once, when they are parsed
(:class:`~holdfast.members.config.settings.Settings`). The plain assignors for stock clients call
:func:`resolve` themselves; commands call :func:`computing`.

References: KIP-726 ("assignors are user-customisable"); Incremental Cooperative Rebalancing,
"General Approach" (an application provides its own policies).
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from holdfast.cluster.signal_safe import SignalSafeFuture
from holdfast.core.assignors.own import OwnAssignor, assignor, form_of, required_of
from holdfast.core.assignors.registry import (
    ASSIGNORS,
    JAVA_NAMES,
    AssignorInfo,
    Named,
    canonical,
    find,
    unknown,
)
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.policy import (
    DESIGNS,
    POLICIES,
    KindPolicy,
    PolicyInfo,
    find_policy,
    policy,
    worker_policy,
)
from holdfast.core.machine.supported_protocols import AssignorSpec, assignor_of, lacks_group
from holdfast.core.model.constants import Design
from holdfast.errors import ConfigError, LocalProtocolError, PlanError, nearest

_PARTS = ("name", "rebalance_protocols", "subscribe", "read", "lead", "stay")


def resolve(given: object, *, has_deadline: bool = True) -> AssignorSpec:
    """Return the name or the user's own assignor that an entry of a list means.

    In a member the user's own assignor has a deadline, in a command it has none.

    Raises
    ------
    ConfigError
        For an unknown name, a factory that cannot be imported or raises, or an object that is not
        an assignor.
    """
    spec: AssignorSpec
    if not isinstance(given, str):
        spec = _checked(given, repr(given))
    elif (name := canonical(given)) in ASSIGNORS or name in DESIGNS:
        spec = name
    elif "." in name or ":" in name:
        spec = _checked(_imported(name), name)
    else:
        raise unknown(name, DESIGNS)
    return _with_deadline(spec) if has_deadline and isinstance(spec, OwnAssignor) else spec


def resolve_target(given: object) -> Named:
    """Return what computes the targets of a design: a registry name, or the user's own assignor."""
    spec = resolve(given)
    if isinstance(spec, str):
        return find(spec).name
    if isinstance(spec, AssignorInfo):
        return spec
    raise ConfigError(
        f"assignor {spec.name}: it reads and writes bytes, and computes no targets for others; "
        "make one of a function, with holdfast.assignor"
    )


def resolve_policy(given: object) -> PolicyInfo:
    """Return the policy of ``holdfast.policy``: a row of the table, or the user's own.

    Raises
    ------
    ConfigError
        If a function cannot be imported, or an object is not a policy.
    """
    if isinstance(given, str) and given in POLICIES:
        return POLICIES[given]
    row = policy_named_by(given) if isinstance(given, str) else given
    if not isinstance(row, PolicyInfo):
        row = _policy_of(row)
    if row.resolver is None or isinstance(row.resolver, TimedFunction):
        return row
    return replace(row, resolver=TimedFunction(row.name, row.resolver, row.timeout_ms))


def policy_named_by(given: str) -> PolicyInfo:
    """Return a row of the table, or the object ``module:name``, without a deadline."""
    if ":" not in given:
        return find_policy(given)
    try:
        module, _, attribute = given.rpartition(":")
        named = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"holdfast.policy: {given}: {error}") from error
    return named if isinstance(named, PolicyInfo) else _policy_of(named)


def _policy_of(function: object) -> PolicyInfo:
    """Make a policy of a function, with the function's name."""
    name = getattr(function, "__name__", type(function).__name__)
    return policy(name.strip("_<>"), cast(Any, function))


def design_of(row: PolicyInfo, subject: str) -> Design:
    """Return the design that a policy means for one kind, or for a worker.

    Raises
    ------
    ConfigError
        If the policy is not a design, such as ``eager``; the text begins with ``subject``.
    """
    runs = worker_policy(row)
    if runs is None or runs.design is None:
        known = ", ".join(info.name for info in POLICIES.values() if info.worker)
        raise ConfigError(f"{subject} takes {known}, found {row.name}")
    return runs.design


def resolve_kind(kind: str, own: Mapping[str, Any]) -> KindPolicy:
    """Return what ``holdfast.kinds`` says of one kind, except its weight."""
    name = own.get("holdfast.policy")
    row = None if name is None else resolve_policy(name)
    if row is not None and (row.failback or row.damps or row.resolver is not None):
        raise ConfigError(f"holdfast.kinds: {kind}: {row.name} is a policy of a whole group")
    return KindPolicy(
        design=None if row is None else design_of(row, f"holdfast.kinds: {kind}: a kind"),
        delay_ms=own.get("scheduled.rebalance.max.delay.ms"),
    )


def resolve_for_command(given: str) -> Named:
    """Return a registry name, or the object ``module:name``, for a command without a member."""
    spec = resolve(given, has_deadline=False)
    return spec if isinstance(spec, AssignorInfo) else resolve_target(spec)


def make_assignor(given: AssignorSpec, options: Mapping[str, Any]) -> Assignor:
    """Return the result of :func:`resolve` with its options; a ready assignor takes none."""
    if isinstance(given, str | AssignorInfo):
        return assignor_of(given, options)
    if options:
        raise ConfigError(f"{given.name}: it takes no options, found {', '.join(sorted(options))}")
    return given


def _imported(name: str) -> object:
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"unknown assignor {name!r}: it is not in the registry, no Java class that "
            f"holdfast knows, and no factory: {error}{nearest(name, JAVA_NAMES)}"
        ) from error


def _checked(given: object, shown: str) -> AssignorInfo | Assignor:
    """Return the assignor itself, or the one made of a function or by a factory."""
    candidate = given
    if inspect.isfunction(given) and required_of(given):
        form_of(given, shown)
        return assignor(given.__name__, given)
    if callable(given) and (isinstance(given, type) or _missing(given)):
        try:
            candidate = given()
        except Exception as error:
            raise ConfigError(f"assignor {shown}: its factory raised {error!r}") from error
    if isinstance(candidate, AssignorInfo):
        return candidate
    if missing := _missing(candidate):
        raise ConfigError(
            f"assignor {shown}: {type(candidate).__name__} has no {', '.join(missing)}; an "
            f"assignor has {', '.join(_PARTS)}, see Assignor in "
            "holdfast.core.machine.leader.assignor_protocol, or is made of a function by "
            "holdfast.assignor"
        )
    return cast(Assignor, candidate)


def _missing(candidate: object) -> list[str]:
    return [part for part in _PARTS if not hasattr(candidate, part)]


class TimedFunction:
    """A user's function with a deadline, which makes one call at a time.

    The caller waits no longer than the deadline. While a late call still runs, no other call is
    made. Each call has a thread of its own: the interpreter would wait for a pool at exit, and a
    user's function may hang for ever.
    """

    def __init__(self, name: str, function: Callable[..., Any], timeout_ms: int):
        self._name = name
        self._function = function
        self._timeout_ms = timeout_ms
        self._running: SignalSafeFuture[Any] | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether an earlier call still runs."""
        return self._running is not None and not self._running.done()

    def __call__(self, *arguments: object) -> Any:
        """Return the result of the function, or raise a PlanError if it is late or busy."""
        if self.is_busy:
            raise PlanError("its function still works on an earlier round")
        self._running = future = SignalSafeFuture[Any]()

        def run() -> None:
            try:
                future.set_result(self._function(*arguments))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=f"holdfast-{self._name}", daemon=True).start()
        if not future.wait(self._timeout_ms / 1000):
            raise PlanError(f"its function gave no answer within {self._timeout_ms} ms")
        return future.result()


def _with_deadline(own: OwnAssignor) -> OwnAssignor:
    """Return the assignor with a deadline; each client has calls of its own."""
    if isinstance(own.plan, TimedFunction):
        return own
    return replace(own, plan=TimedFunction(own.name, own.plan, own.timeout_ms))


def check_group(assignor: Assignor) -> None:
    """Refuse an assignor whose last tie-break takes the group id, if it has none.

    References: KAFKA-5337 (two groups load different members).
    """
    if lacks_group(assignor):
        raise LocalProtocolError(
            f"{assignor.name}: its last tie-break takes the group id: give "
            f"assignor({assignor.name!r}, group_id=...)"
        )
