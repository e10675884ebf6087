"""The state of a member for others: a snapshot, a log with its identity, a file for a probe.

**Rules.** Every record of the logger ``holdfast.member`` carries the group, client id, member id
and generation, whichever thread wrote it, so that one filter or one JSON formatter serves all
members of a process. A secret is never logged.

The readiness file exists while the member's machine is ``STABLE``, and at no other time: not before
the first rebalance is complete, not during a revocation or a later rebalance, not once it leaves or
has failed. Its modification time is that of the last heartbeat that the coordinator acknowledged,
so a file older than the session belongs to a process that hangs. A file left by a killed process is
removed when a client is made. A file that cannot be written never ends the member.

**Strategy.** A logger adapter reads the member's identity for each record. The member thread keeps
the file, so the file shows the machine's state however the application polls. The file is removed
before the actions of an event are performed and created after them.

References: Python's ``logging``: ``LoggerAdapter`` (which would drop a call's own ``extra`` before
3.13); Kubernetes, "Configure Liveness, Readiness and Startup Probes".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from holdfast.core.machine.shared_values import Identity
from holdfast.core.machine.states import MemberState
from holdfast.core.model.constants import NO_GENERATION
from holdfast.core.model.partitions import Resource
from holdfast.errors import ConfigError
from holdfast.members.config.settings import Settings

NAME = "holdfast.member"
READY_FILE = "holdfast.ready.file"  # the key
Log = logging.Logger | logging.LoggerAdapter[logging.Logger]
NOT_IN_A_GROUP = Identity(generation=NO_GENERATION, member_id="", instance_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """The state of a member after the last event, whose actions may still be running.

    Resources lost in the last event are already dropped. ``terms`` numbers the term of each owned
    resource.
    """

    state: MemberState
    identity: Identity
    owned: frozenset[Resource]
    terms: Mapping[Resource, int] = field(default_factory=dict)
    is_leader: bool = False


NOT_JOINED = MemberSnapshot(state=MemberState.UNJOINED, identity=NOT_IN_A_GROUP, owned=frozenset())
"""The snapshot of a member that has not started."""


class MemberLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one member."""

    def __init__(self, settings: Settings):
        fields = {"group": settings["group.id"], "client_id": settings["client.id"]}
        super().__init__(logging.getLogger(NAME), fields)
        # A member thread replaces it.
        self.identify: Callable[[], Identity] = lambda: NOT_IN_A_GROUP

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, Any]:
        """Add the fields; fields of the call itself take precedence."""
        who = self.identify()
        fields = {
            **(self.extra or {}),
            "member_id": who.member_id,
            "generation": who.generation,
            **(kwargs.get("extra") or {}),
        }
        return f"{fields['group']}: {msg}", {**kwargs, "extra": fields}


class ReadyFile:
    """The file of one member, whose folder exists; without a path nothing is written."""

    def __init__(self, path: Path | None, log: Log):
        self._path = path or Path()
        self._log = log
        self._is_wanted = path is not None
        self._exists = False
        self._has_warned = False  # about a file that cannot be written
        if path is not None:
            _clear(path)

    @classmethod
    def of(cls, settings: Settings, log: Log) -> Self:
        """Return the configured file."""
        path = settings[READY_FILE]
        return cls(None if path is None else Path(path), log)

    def remove_unless_stable(self, state: MemberState) -> None:
        """Remove the file unless the member is stable; before the actions of that state."""
        if state is not MemberState.STABLE:
            self.remove()

    def create_if_stable(self, state: MemberState, generation: int) -> None:
        """Create the file if the member is stable; its text is the generation."""
        if not self._is_wanted or state is not MemberState.STABLE or self._exists:
            return
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(f"generation {generation}\n")
            new.replace(self._path)
            self._exists = True
        except OSError as error:
            self._warn(error)

    def touch(self) -> None:
        """Update the file's time: the coordinator has acknowledged a heartbeat."""
        if self._exists:
            try:
                os.utime(self._path)
            except OSError as error:
                self._exists = False  # another process removed the file: it is created again
                self._warn(error)

    def remove(self) -> None:
        """Remove the file."""
        if self._exists:
            self._exists = False
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._log.warning("%s: %s cannot be kept: %s", READY_FILE, self._path, error)


def clear_ready_file(settings: Settings) -> None:
    """Remove the file of a killed process; for a client that makes its member later."""
    if settings[READY_FILE] is not None:
        _clear(Path(settings[READY_FILE]))


def _clear(path: Path) -> None:
    if not path.parent.is_dir():
        raise ConfigError(f"{READY_FILE}: folder {str(path.parent)!r} does not exist")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{READY_FILE}: {str(path)!r} cannot be removed: {error}") from error
