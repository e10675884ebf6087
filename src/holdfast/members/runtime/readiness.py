"""The file that says that a member is ready: for the probe of an orchestrator.

**Rules.** The file is there while the member's machine is ``STABLE``, and at no other time: not
before the first round is complete, not during a hand-over or a later round, not once it leaves or
has failed. Its time is that of the last heartbeat that the coordinator acknowledged, so a file that
is older than the session belongs to a process that hangs. One left by a process that was killed is
removed when a client is made. A file that cannot be written never ends the member.

**Strategy.** The member's own thread keeps the file, so what it says is what the machine is,
however the application polls. The file is taken away before the actions of an event are done and
put there after them.

References: Kubernetes, "Configure Liveness, Readiness and Startup Probes".
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.cluster.settings import Settings
from holdfast.core.machine.states import MemberState
from holdfast.errors import ConfigError
from holdfast.members.runtime.member_log import Log

KEY = "holdfast.ready.file"


class ReadyFile:
    """The file of one member.

    Parameters
    ----------
    path : Path
        Where; the folder exists.
    log : Log
        Gets a warning if the file cannot be written.

    Raises
    ------
    ConfigError
        If there is no such folder, or an older file cannot be removed.
    """

    def __init__(self, path: Path, log: Log):
        self._path = path
        self._log = log
        self._is_there = False
        self._is_warned = False  # that it cannot be written
        _clear(path)

    def leave(self, state: MemberState) -> None:
        """Take the file away unless the member is stable; before what that state brings is done."""
        if state is not MemberState.STABLE:
            self.end()

    def enter(self, state: MemberState, generation: int) -> None:
        """Put the file there if the member is stable; it says the generation."""
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
        """Note the time: the coordinator has acknowledged a heartbeat."""
        if self._is_there:
            try:
                os.utime(self._path)
            except OSError as error:
                self._is_there = False  # somebody took it away: it is written again
                self._warn(error)

    def end(self) -> None:
        """Take the file away."""
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
    """Remove what a killed process left; for a client that makes its member later."""
    if settings[KEY] is not None:
        _clear(Path(settings[KEY]))


def _clear(path: Path) -> None:
    if not path.parent.is_dir():
        raise ConfigError(f"{KEY}: there is no folder {str(path.parent)!r}")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{KEY}: {str(path)!r} cannot be removed: {error}") from error


def ready_file(settings: Settings, log: Log) -> ReadyFile | None:
    """The file that the configuration names, if it names one."""
    path = settings[KEY]
    return None if path is None else ReadyFile(Path(path), log)
