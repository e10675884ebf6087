"""Finds a Java that runs both Kafka 4.3 and Spark 4.0, and starts Spark's Java by a shell script.

**Rules.** ``JAVA_HOME`` is tried first, then ``java`` on ``PATH``; nothing is installed. If no Java
fits, the error names the Java that was found and the version to install. Only a JVM that this
process starts on this machine goes through the script. ``JAVA_HOME`` names the Java that was found
when the JVM runs.

**Strategy.** The executable is run once with ``-XshowSettings:properties`` to get its home and its
version. So symbolic links and the shims of version managers lead to the real folder. Spark requests
the incubator module ``jdk.incubator.vector``, which only its machine learning uses, and Java warns
about it on stderr at every start. Spark runs ``$JAVA_HOME/bin/java``; at that moment this is
holdfast's script, which omits the module.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.errors import JavaError

OLDEST, NEWEST = 17, 23
"""Kafka's server and Spark 4.0 need 17; the Hadoop inside Spark 4.0 fails with 24."""

INSTALL = "install a JDK 17 or 21 (Debian: apt-get install openjdk-17-jre-headless)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A usable Java: its home folder, its executable and its feature version (17, 21, ...)."""

    home: Path
    executable: Path
    version: int


def find_java() -> Java:
    """Find a usable Java: from ``JAVA_HOME`` if it is usable, else from ``PATH``."""
    home = os.environ.get("JAVA_HOME", "")
    candidates = []
    if home:
        candidates.append(("JAVA_HOME", str(Path(home) / "bin" / "java")))
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(("PATH", on_path))
    problems = []
    for source, executable in candidates:
        found = _probe(executable)
        if isinstance(found, str):
            problems.append(f"{source}: {executable} {found}")
        elif OLDEST <= found.version <= NEWEST:
            return found
        else:
            problems.append(f"{source}: {executable} is Java {found.version}")
    what = "; ".join(problems) if problems else "neither JAVA_HOME nor PATH has a java"
    raise JavaError(f"no usable Java ({what}): {INSTALL}")


@cache
def _probe(executable: str) -> Java | str:
    """Return home and version of one executable, or a text that says why it cannot be used."""
    if not os.access(executable, os.X_OK):
        return "is not an executable file"
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, no shell
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({type(error).__name__})"
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", answer.stderr)
    home = re.search(r"java\.home = (.+)", answer.stderr)
    if version is None or home is None:
        return f"does not answer like a Java (exit code {answer.returncode})"
    java_home = Path(home.group(1).strip())
    own = java_home / "bin" / "java"
    return Java(
        home=java_home,
        executable=own if own.exists() else Path(executable),
        version=int(version.group(1)),
    )


_WITHOUT_THE_MODULE = """\
#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  [ "$1" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$1"
  shift
  n=$((n - 1))
done
"""


@contextmanager
def java_for_spark(*, is_local: bool) -> Iterator[None]:
    """Set ``JAVA_HOME`` for the JVM that Spark starts while the block runs.

    Parameters
    ----------
    is_local : bool
        Whether the JVM runs all tasks itself. Else executors take their ``JAVA_HOME`` from this
        process, and later, so the script is not used.
    """
    java = find_java()
    home = os.environ["JAVA_HOME"] = str(java.home)
    if not is_local:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-java-") as folder:
        script = Path(folder) / "bin" / "java"
        script.parent.mkdir()
        run = f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"'
        script.write_text(f"{_WITHOUT_THE_MODULE}{run}\n")
        script.chmod(0o700)
        if os.access(script, os.X_OK):  # else the folder is mounted noexec
            os.environ["JAVA_HOME"] = folder
        try:
            yield
        finally:
            os.environ["JAVA_HOME"] = home
