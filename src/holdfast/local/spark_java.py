"""Starts Spark's Java by a shell script, without a module that Java warns about.

**Rules.** Only a JVM that this process starts on this machine goes through the script.
``JAVA_HOME`` names the Java that was found when the JVM runs.

**Strategy.** Spark requests the incubator module ``jdk.incubator.vector``, which only its machine
learning uses, and Java warns about it on stderr at every start. Spark runs ``$JAVA_HOME/bin/java``;
at that moment this is holdfast's script, which omits the module. The script also keeps the classes
that the JVM has parsed (:mod:`holdfast.local.class_archive`).
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.local.class_archive import ClassArchive, class_archive
from holdfast.local.java import find_java

OTHER_CLASS_PATHS: Final = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
"""Variables that add to PySpark's class path, with which Java may refuse the archive."""


@contextmanager
def java_for_spark(jars: Path, *, is_local: bool) -> Iterator[tuple[str, ...]]:
    """Yield options for the JVM that Spark starts while the block runs.

    Parameters
    ----------
    jars : Path
        PySpark's folder of jars.
    is_local : bool
        Whether the JVM runs all tasks itself. Else executors take their ``JAVA_HOME`` from this
        process, and later, so the script is not used, and no archive is made.

    Raises
    ------
    JavaError
        If no Java is usable.
    """
    java = find_java()
    home = os.environ["JAVA_HOME"] = str(java.home)
    is_pysparks = not any(map(os.environ.get, OTHER_CLASS_PATHS))
    archive = class_archive(java, sorted(jars.glob("*"))) if is_pysparks else None
    used = archive.options if archive and archive.draft is None else ()
    if not is_local:
        yield used
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-java-") as folder:
        script = Path(folder) / "bin" / "java"
        script.parent.mkdir()
        script.write_text(script_of(java.home / "bin" / "java", archive))
        script.chmod(0o700)
        if not os.access(script, os.X_OK):  # the folder is mounted noexec
            yield used
            return
        os.environ["JAVA_HOME"] = folder
        try:
            yield archive.options if archive else ()
        finally:
            os.environ["JAVA_HOME"] = home


def script_of(java: Path, archive: ClassArchive | None = None) -> str:
    """Return a shell script to run instead of ``java``."""
    line = f'{shlex.quote(str(java))} "$@"'
    after = archive.after_java if archive else ""
    end = f"{line}\ncode=$?\n{after}exit $code" if after else f"exec {line}"
    return f"{_WITHOUT_THE_MODULE}{end}\n"


_WITHOUT_THE_MODULE: Final = """\
#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  [ "$1" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$1"
  shift
  n=$((n - 1))
done
"""
