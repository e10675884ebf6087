"""Archives of parsed Java classes: a JVM that maps one starts in half the CPU time.

**Rules.** Nothing here fails a command or prints anything: without a writable folder, without disk
space, or with ``HOLDFAST_CLASS_ARCHIVE=off``, Java starts as it would without an archive. An
archive is used only if its bytes are those of its first complete use: Java 17 crashes on a
truncated one. An archive for another Java or other jars is another file.

**Strategy.** The first JVM writes a draft when it ends (``-XX:ArchiveClassesAtExit``, JEP 350). Its
starter, a shell script for Spark, waits for its end, and renames the draft if it succeeded. If two
JVMs do so at once, each has a draft of its own, and the first one stays. The first command that
finds ``NAME.jsa`` writes its digest to ``NAME.digest``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Final

from holdfast.errors import JavaError
from holdfast.local.jars import cache_folder
from holdfast.local.java import Java

SETTING: Final = "HOLDFAST_CLASS_ARCHIVE"
ROOM_BYTES: Final = 10**9
"""An archive of Spark has 140 MB, a broker's 50 MB; a nearly full disk gets none."""
UNUSED_SECONDS: Final = 30 * 86_400
"""Archives unused for this time are deleted when another one is made."""
DRAFT_SECONDS: Final = 3_600
"""An older draft belongs to a killed JVM."""
QUIET: Final = "-Xlog:cds*=off"
"""Suppresses Java's output on stdout about classes that it cannot archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    """An archive to use, or one to make."""

    file: Path
    # Where a JVM writes the archive; None if the archive exists.
    draft: Path | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the JVM."""
        if self.draft is None:
            return f"-XX:SharedArchiveFile={self.file}", QUIET
        return f"-XX:ArchiveClassesAtExit={self.draft}", QUIET

    @property
    def after_java(self) -> str:
        """Shell commands after the JVM, whose exit code is ``$code``; "" for nothing."""
        if self.draft is None:
            return ""
        draft, file = shlex.quote(str(self.draft)), shlex.quote(str(self.file))
        return (
            f'[ "$code" = 0 ] && chmod 600 {draft} 2>&- && ln {draft} {file} 2>&-\nrm -f {draft}\n'
        )

    def keep(self) -> None:
        """Rename the draft of a JVM that succeeded, unless another archive exists."""
        if self.draft is not None:
            with suppress(OSError):
                self.draft.chmod(0o600)
                os.link(self.draft, self.file)
            self.draft.unlink(missing_ok=True)


def class_archive(java: Java, jars: Sequence[Path]) -> ClassArchive | None:
    """Return the archive of a Java for a class path; None if it does not exist and cannot be made.

    Parameters
    ----------
    java : Java
        The Java to run.
    jars : sequence of Path
        The whole class path, in order.
    """
    if os.environ.get(SETTING, "").lower() == "off":
        return None
    try:
        folder = cache_folder() / "classes"
        if not str(folder).isprintable() or set(str(folder)) & {os.pathsep, '"', "\\"}:
            return None  # Java takes the first for a list of archives, Spark the others for quotes
        file = folder / f"{_key(java, jars)}.jsa"
        if file.is_file():
            return ClassArchive(file=file) if _is_whole(file) else None
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < ROOM_BYTES:
            return None
        _forget(folder)
        file.with_suffix(".digest").unlink(missing_ok=True)
        return ClassArchive(file=file, draft=folder / f"{file.stem}.{uuid.uuid4().hex}.draft")
    except (OSError, JavaError):
        return None


def _key(java: Java, jars: Sequence[Path]) -> str:
    """Return the name of the archive, which depends on the Java and the jars."""
    listed = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    release = java.home / "release"
    about = release.read_bytes() if release.is_file() else b""
    text = repr((str(java.home), java.version, about, listed))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _is_whole(file: Path) -> bool:
    """Return whether an archive is complete and unchanged; delete it if not."""
    status = file.stat()
    beside = file.with_suffix(".digest")
    with file.open("rb") as opened:
        found = file_digest(opened, "blake2b").hexdigest()
    if not beside.is_file():
        draft = beside.with_suffix(f".{uuid.uuid4().hex}.draft")
        draft.write_text(found, encoding="ascii")
        draft.replace(beside)
    is_ours = status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022
    if is_ours and beside.read_text(encoding="ascii") == found:
        with suppress(OSError):  # it is used even if nothing may be written
            os.utime(file)
        return True
    file.unlink()
    beside.unlink(missing_ok=True)
    return False


def _forget(folder: Path) -> None:
    """Delete old archives, and drafts of killed JVMs."""
    now = time.time()
    for path in folder.iterdir():
        limit = DRAFT_SECONDS if path.suffix == ".draft" else UNUSED_SECONDS
        if path.stat().st_mtime < now - limit:
            path.unlink(missing_ok=True)
