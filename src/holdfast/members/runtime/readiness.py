"""The readiness file of a member, for the probe of an orchestrator.

**Rules.** The file exists while the member's machine is ``STABLE``, and at no other time: not
before the first round is complete, not during a revocation or a later round, not once it leaves or
has failed. Its modification time is that of the last heartbeat that the coordinator acknowledged,
so a file older than the session belongs to a process that hangs. A file left by a killed process is
removed when a client is made. A file that cannot be written never ends the member.

**Strategy.** The member thread keeps the file, so the file shows the machine's state however the
application polls. The file is removed before the actions of an event are performed and created
after them.

References: Kubernetes, "Configure Liveness, Readiness and Startup Probes".
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.core.machine.states import MemberState
from holdfast.errors import ConfigError
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.member_log import Log

KEY = "holdfast.ready.file"


class ReadyFile:
    """The file of one member; its folder exists."""

    def __init__(self, path: Path, log: Log):
        self._path = path
        self._log = log
        self._is_there = False
        self._is_warned = False  # about a file that cannot be written
        _clear(path)

    def leave(self, state: MemberState) -> None:
        """Remove the file unless the member is stable; before the actions of that state."""
        if state is not MemberState.STABLE:
            self.end()

    def enter(self, state: MemberState, generation: int) -> None:
        """Create the file if the member is stable; its text is the generation."""
        if state is not MemberState.STABLE or self._is_there:
            return
        made = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with os.fdopen(
                os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
            ) as file:
                file.write(f"generation {generation}\n")
            made.replace(self._path)
            self._is_there = True
        except OSError as error:
            self._warn(error)

    def beat(self) -> None:
        """Update the file's time: the coordinator has acknowledged a heartbeat."""
        if self._is_there:
            try:
                os.utime(self._path)
            except OSError as error:
                self._is_there = False  # another process removed it: it is written again
                self._warn(error)

    def end(self) -> None:
        """Remove the file."""
        if self._is_there:
            self._is_there = False
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._is_warned:
            self._is_warned = True
            self._log.warning("%s: %s cannot be kept: %s", KEY, self._path, error)


def clear_ready_file(settings: Settings) -> None:
    """Remove the file of a killed process; for a client that makes its member later."""
    if settings[KEY] is not None:
        _clear(Path(settings[KEY]))


def _clear(path: Path) -> None:
    if not path.parent.is_dir():
        raise ConfigError(f"{KEY}: folder {str(path.parent)!r} does not exist")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{KEY}: {str(path)!r} cannot be removed: {error}") from error


def ready_file(settings: Settings, log: Log) -> ReadyFile | None:
    """Return the configured readiness file, None without one."""
    path = settings[KEY]
    return None if path is None else ReadyFile(Path(path), log)
