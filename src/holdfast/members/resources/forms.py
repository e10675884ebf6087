"""The forms in which a program gives its work, and the runner of each."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from holdfast.cluster.settings import Settings
from holdfast.errors import ConfigError
from holdfast.members.resources.failures import Failures
from holdfast.members.resources.listener_calls import ListenerRunner
from holdfast.members.resources.machine import ResourceMachine
from holdfast.members.resources.runner import Reports, Resource, Runner
from holdfast.members.resources.stop_events import AsyncStopEvent, StopEvent
from holdfast.members.resources.supervisor import Supervisor
from holdfast.members.resources.threads import ThreadRunner
from holdfast.members.runtime.member_log import MemberLog

Run: TypeAlias = (
    Callable[[Resource, StopEvent], object]
    | Callable[[Resource, AsyncStopEvent], Awaitable[object]]
)
"""The work on one resource: a function, or a coroutine function."""


def supervise(
    settings: Settings, run: Run | None, listener: object, log: MemberLog, name: str
) -> Supervisor:
    """Return the supervisor of a worker's work; nothing has begun.

    Parameters
    ----------
    run : callable, optional
        The work on one resource.
    listener : object, optional
        Callbacks for the resources of a round, instead of ``run``.
    name : str
        Name of the worker, for threads and delays.

    Raises
    ------
    ConfigError
        For both forms together, or a ``run`` that cannot be called for a resource.
    """
    if run is not None and listener is not None:
        raise ConfigError("run and listener: expected one of them, found both")
    given: object = run
    if given is not None and (not callable(given) or inspect.isgeneratorfunction(given)):
        raise ConfigError(f"run: expected a function or an async function, found {run!r}")
    most = None if run is None or _is_async(run) else settings["holdfast.run.threads"]
    failures = Failures(
        settings["holdfast.restart.backoff.ms"], settings["holdfast.restart.backoff.max.ms"], name
    )
    machine = ResourceMachine(
        failures,
        stop_ms=settings["task.shutdown.graceful.timeout.ms"],
        most=most,
        one_call=run is None,
    )
    make = partial(_runner, run, listener, log, name)
    return Supervisor(machine, make, log, listener)


def _runner(run: Any, listener: object, log: MemberLog, name: str, reports: Reports) -> Runner:
    if run is None:
        return ListenerRunner(listener, reports, log, f"{name}-callbacks")
    if not _is_async(run):
        return ThreadRunner(run, reports)
    from holdfast.members.resources.event_loop import LoopRunner

    return LoopRunner(run, reports)


def _is_async(run: object) -> bool:
    """Return whether a call of ``run`` returns a coroutine."""
    called = getattr(type(run), "__call__", None)  # noqa: B004 - of an object with a method
    return inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(called)
