"""Which settings file counts, and which files of strangers do not.

**Rules.** A file that was found by looking upwards counts only if this user or root owns it and its
folder, and nobody else can write either. Each file that is passed by is told with the reason and
with what to do. A file above the project sets no server, credentials or output without a note. A
file that the user names (``HOLDFAST_CONFIG``) or keeps for himself (``~/.config``) needs no check.

**Strategy.** The project is the nearest folder upwards that holds one of :data:`MARKS`, or else the
current folder. A link is followed: its own folder and the file behind it must both pass. A folder
with the sticky bit (such as ``/tmp``) passes, because there nobody can replace a file of another
user.

References: CVE-2022-24765 (settings of a stranger in a parent folder).
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.names import shell_word

FILE_NAME = "holdfast.toml"
NAMED_BY = "HOLDFAST_CONFIG"
MARKS = (".git", "pyproject.toml")
"""A folder that holds one of these is a project."""

GUARDED = {
    "bootstrap-server": "the server",
    "listen": "the address to listen on",
    "command-config": "the credentials",
    "token-file": "the credentials",
    "output": "an output",
    "metrics": "an output",
    "trace": "an output",
    "dump": "an output",
}
"""Options that a file above the project does not set in silence, and what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """What the search for a settings file has found.

    Parameters
    ----------
    path : Path or None
        The file that counts.
    project : Path or None
        The project's folder; None where the current folder is gone.
    above : bool
        Whether the file stands in a folder above the project.
    ignored : tuple of str
        A line about each file that was passed by: why, and what to do.
    """

    path: Path | None
    project: Path | None
    above: bool = False
    ignored: tuple[str, ...] = ()


def find_file() -> SettingsFile:
    """Find the file: ``HOLDFAST_CONFIG``, else the nearest that counts, else the user's own.

    Raises
    ------
    ConfigError
        If ``HOLDFAST_CONFIG`` names no file.
    """
    folders = _upwards()
    project = _project(folders)
    named = os.environ.get(NAMED_BY)
    if named:
        if not Path(named).is_file():
            raise ConfigError(f"{NAMED_BY}: {named} is not a file")
        return SettingsFile(path=Path(named), project=project)
    ignored: list[str] = []
    for folder in folders:
        path = folder / FILE_NAME
        if not _is_file(path):
            continue
        fault = _fault(path)
        if fault is None:
            above = project is not None and folder in project.parents
            return SettingsFile(path=path, project=project, above=above, ignored=tuple(ignored))
        word = shell_word(str(path))
        ignored.append(f"ignored {path}: {fault}, or name it: {NAMED_BY}={word}")
    own = next(filter(_is_file, _own()), None)
    return SettingsFile(path=own, project=project, ignored=tuple(ignored))


def _upwards() -> tuple[Path, ...]:
    """The current folder and those above; none if it was removed under us."""
    with suppress(OSError):
        here = Path.cwd()
        return (here, *here.parents)
    return ()


def _project(folders: tuple[Path, ...]) -> Path | None:
    marked = (f for f in folders if any(_exists(f / mark) for mark in MARKS))
    return next(marked, folders[0] if folders else None)


def _own() -> Iterator[Path]:
    with suppress(RuntimeError):  # a user without a home has none
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        yield Path(base) / "holdfast" / FILE_NAME


def _is_file(path: Path) -> bool:
    """Whether it is a file for us: one behind a folder that is closed to us is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _fault(path: Path) -> str | None:
    """Why a file does not count and what mends it; None if it counts."""
    try:
        real = path.resolve(strict=True)
        places = [real, real.parent, *([path.parent] if path.is_symlink() else [])]
        for place in places:
            fault = _fault_of(place, place.stat())
            if fault is not None:
                return fault
    except OSError as error:
        return f"cannot look at it ({error.strerror}); make it readable"
    return None


def _fault_of(place: Path, held: os.stat_result) -> str | None:
    word = shell_word(str(place))
    if held.st_uid not in (os.geteuid(), 0):
        return f"{place} belongs to {_user(held.st_uid)}; take it over (`chown {_user()} {word}`)"
    if stat.S_ISDIR(held.st_mode) and held.st_mode & stat.S_ISVTX:
        return None
    if held.st_mode & stat.S_IWOTH:
        return f"anybody can write {place}; close it (`chmod go-w {word}`)"
    if held.st_mode & stat.S_IWGRP and not _is_private(held):
        group = _group(held.st_gid)
        return f"group {group} can write {place}; close it (`chmod g-w {word}`)"
    return None


def _is_private(held: os.stat_result) -> bool:
    """Whether the group is its owner's private one, as many systems make them."""
    try:
        owner, group = pwd.getpwuid(held.st_uid), grp.getgrgid(held.st_gid)
    except KeyError:
        return False
    alone = owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name
    return alone and set(group.gr_mem) <= {owner.pw_name}


def _user(uid: int | None = None) -> str:
    number = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}" if uid is not None else str(number)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
