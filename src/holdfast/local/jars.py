"""Jars of Kafka's server and of Spark's Kafka source, fetched by PySpark's Ivy.

**Rules.** ``jars.sha256`` next to this file lists each jar of the default versions, with its
SHA-256: a folder of such a version holds exactly the listed jars, or is not used. Another version
that a user requests is checked against its first download. Only holdfast's cache folder is read and
written, never ``~/.m2`` or ``~/.ivy2``. A folder of jars appears there complete or not at all, even
if two processes resolve at once. PySpark's files are located without importing PySpark.

**Strategy.** ``HOLDFAST_CACHE`` (else ``XDG_CACHE_HOME/holdfast``, else ``~/.cache/holdfast``)
holds ``jars/NAME/*.jar`` and Ivy's own cache. Ivy retrieves into a folder next to the final one,
and the folder is renamed under a lock. ``HOLDFAST_JARS`` names a folder in the layout of ``jars/``
for networks without a Maven repository; ``HOLDFAST_IVY_SETTINGS`` an Ivy settings file for mirrors.
Every jar is hashed before every use. ``jars.sha256`` is made by ``sha256sum FOLDER/*.jar`` in
``jars/`` of a fresh cache, and confirmed by another client: ``mvn -C dependency:get``, which checks
each jar by its repository's checksum, fetched the same files.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from holdfast.errors import ConfigError, JavaError
from holdfast.local.java import Java, find_java

_KAFKA = "org.apache.kafka:kafka_2.13"
KAFKA_VERSION = "4.3.1"
"""The default version of Kafka's server, with its clients and tools."""

OLDEST_KAFKA = (2, 5)
"""The first release that answers every request of holdfast (:mod:`holdfast.cluster.versions`)."""

_LOG4J_2 = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
_LOG4J_1 = "org.slf4j:slf4j-reload4j:1.7.36"

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"

DELTA = "io.delta:delta-spark_2.13"

MSK_LOGIN = "software.amazon.msk:aws-msk-iam-auth:2.3.0"
"""Amazon's login of Java's client by IAM."""

Note = Callable[[str], None]

_ATTEMPTS_S = (120, 300, 900)
"""A stalled connection ends soon; Ivy keeps the files that are whole for the next attempt."""
_LIST = "jars.json"
_CHECKSUMS = Path(__file__).with_name("jars.sha256")


def broker_jars(version: str = KAFKA_VERSION, *, note: Note | None = None) -> list[Path]:
    """Return the jars of a whole Kafka server, by :func:`resolve`."""
    return resolve(broker_coordinates(version), broker_folder(version), note=note)


def broker_coordinates(version: str = KAFKA_VERSION) -> list[str]:
    """Return Maven coordinates of a Kafka server, with the binding of its logging to log4j.

    The log4j is version 2 since Kafka 4.0, the repaired version 1 (reload4j) before. Kafka's own
    releases add the binding too.
    """
    logging = _LOG4J_2 if kafka_release(version) >= (4, 0) else _LOG4J_1
    return [f"{_KAFKA}:{version}", logging]


def broker_folder(version: str) -> str:
    """Return the name of the folder with the jars of a Kafka server."""
    return f"kafka_2.13-{version}-log4j"


def kafka_release(version: str) -> tuple[int, int]:
    """Return the release of a version: ``3.6.2`` -> (3, 6); refuse one before OLDEST_KAFKA."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.\d+", version)
    if match is None:
        raise ConfigError(f"{version!r} is not a version of Kafka (such as {KAFKA_VERSION})")
    release = int(match.group(1)), int(match.group(2))
    if release < OLDEST_KAFKA:
        raise ConfigError(
            f"Kafka {version} is older than {'.'.join(map(str, OLDEST_KAFKA))}, the first release "
            "that holdfast works with"
        )
    return release


def connector_jars(pyspark_version: str, *, note: Note | None = None) -> list[Path]:
    """Return the jars for ``spark.jars`` for the ``kafka`` source of a PySpark.

    The first connector of a minor runs with every patch of that minor; ``HOLDFAST_SPARK_CONNECTOR``
    names another one.
    """
    return _beside_pyspark(connector_of(pyspark_version), note)


def connector_of(pyspark_version: str) -> str:
    """Return Maven's coordinate of the connector for a PySpark, or of HOLDFAST_SPARK_CONNECTOR."""
    version = os.environ.get("HOLDFAST_SPARK_CONNECTOR") or first_patch(pyspark_version)
    return f"{CONNECTOR}:{version}"


def delta_jars(pyspark_version: str, *, note: Note | None = None) -> list[Path]:
    """Return the jars for ``spark.jars`` for the ``delta`` format of a PySpark.

    A session does without them, so there is one attempt, of five minutes at most.
    """
    return _beside_pyspark(f"{DELTA}:{first_patch(pyspark_version)}", note, attempts_s=(300,))


def msk_jars(*, note: Note | None = None) -> list[Path]:
    """Return the jars for ``spark.jars`` that log Java's client in to Amazon MSK by IAM."""
    return _beside_pyspark(MSK_LOGIN, note)


def _beside_pyspark(
    coordinate: str, note: Note | None, attempts_s: Sequence[int] = _ATTEMPTS_S
) -> list[Path]:
    """Return the jars of a coordinate, without those that PySpark includes."""
    name = coordinate.partition(":")[2].replace(":", "-")
    without = _modules_of_pyspark()
    return resolve([coordinate], name, without=without, note=note, attempts_s=attempts_s)


def first_patch(pyspark_version: str) -> str:
    """Return the first patch of a minor: ``4.0.5`` -> ``4.0.0``."""
    match = re.match(r"(\d+)\.(\d+)\.", pyspark_version)
    if match is None:
        raise ConfigError(f"{pyspark_version!r} is not a version of PySpark (such as 4.0.5)")
    return f"{match.group(1)}.{match.group(2)}.0"


def cache_folder() -> Path:
    """Return holdfast's cache folder, which may not exist yet."""
    own = os.environ.get("HOLDFAST_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            return Path(own).expanduser().absolute()
        return (Path(base) if base else Path.home() / ".cache").absolute() / "holdfast"
    except RuntimeError as error:
        raise JavaError("no home folder for the cache: HOLDFAST_CACHE names another") from error


def resolve(
    coordinates: Sequence[str],
    name: str,
    *,
    without: Collection[str] = (),
    note: Note | None = None,
    attempts_s: Sequence[int] = _ATTEMPTS_S,
) -> list[Path]:
    """Return the jars of Maven coordinates and of their dependencies, as sorted absolute paths.

    The JavaError of jars that cannot be fetched says in one line what to do.

    Parameters
    ----------
    coordinates : sequence of str
        ``group:artifact:version``.
    name : str
        Folder under ``jars/`` of the cache; one name always means the same coordinates.
    without : collection of str
        Artifacts (module names) to leave out, with dependencies of their own.
    note : callable, optional
        Called with one line before the first download.
    attempts_s : sequence of int
        Timeout of each attempt to download, in seconds.
    """
    given = os.environ.get("HOLDFAST_JARS")
    if given:
        return _jars_given(Path(given).expanduser().absolute(), name)
    store = cache_folder()
    target = store / "jars" / name
    if not _is_complete(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(store / "jars.lock"):
                if not _is_complete(target):
                    _download(coordinates, target, without, note, attempts_s)
        except OSError as error:
            raise JavaError(
                f"cannot write the cache {store}: {error.strerror}; HOLDFAST_CACHE names another"
            ) from error
    return _jars_in(target)


def _jars_given(root: Path, name: str) -> list[Path]:
    jars = _jars_in(root / name)
    if not jars:
        raise JavaError(
            f"HOLDFAST_JARS: no jars in {root / name}; copy that folder from jars/ in the cache of "
            "a machine with a network"
        )
    fault = fault_of(root / name, checksums().get(name))
    if fault:
        raise JavaError(f"HOLDFAST_JARS: {fault}; copy the folder again from a good cache")
    return jars


def _jars_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


@cache
def checksums() -> Mapping[str, Mapping[str, str]]:
    """Return the SHA-256 of each pinned jar: folder -> jar -> hexadecimal."""
    found: dict[str, dict[str, str]] = {}
    for line in _CHECKSUMS.read_text(encoding="utf-8").splitlines():
        digest, _, path = line.partition("  ")
        folder, _, jar = path.partition("/")
        found.setdefault(folder, {})[jar] = digest
    return found


def fault_of(folder: Path, wanted: Mapping[str, str] | None) -> str:
    """Return the fault of a folder of jars; empty if it holds exactly the wanted ones.

    Parameters
    ----------
    folder : Path
        The folder of jars.
    wanted : mapping of str to str, optional
        Jar -> SHA-256; by default the folder's own list, if it has one.
    """
    if wanted is None:
        try:
            wanted = json.loads((folder / _LIST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ""
    held = {jar.name: jar for jar in _jars_in(folder)}
    if more := sorted(held.keys() - wanted.keys()):
        return f"{folder / more[0]} is none of the jars of this version"
    for name, digest in sorted(wanted.items()):
        if name not in held:
            return f"{folder / name} is missing"
        if _sha256(held[name]) != digest:
            return f"{folder / name} has another SHA-256 than the jar of this version"
    return ""


def _sha256(jar: Path) -> str:
    with jar.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _is_complete(folder: Path) -> bool:
    """Return whether the folder holds exactly what was put there."""
    try:
        return (folder / _LIST).is_file() and not fault_of(folder, checksums().get(folder.name))
    except (OSError, ValueError, AttributeError):  # a broken list
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file: one process at a time; the lock of a dead process is free."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(
    coordinates: Sequence[str],
    target: Path,
    without: Collection[str],
    note: Note | None,
    attempts_s: Sequence[int],
) -> None:
    if note is not None:
        note(f"fetching {', '.join(coordinates)} with its dependencies into {target} (once)")
    java, ivy = find_java(), _ivy_jar()
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        work = Path(scratch)
        description = work / "ivy.xml"
        description.write_text(_ivy_xml(coordinates, without), encoding="utf-8")
        out = work / "jars"
        for timeout_s in attempts_s:
            answer = _run_ivy(java, ivy, description, out, timeout_s)
            if answer is None and _jars_in(out):
                break
        else:
            raise JavaError(_failure(coordinates, answer))
        fault = fault_of(out, checksums().get(target.name))
        if fault:
            raise JavaError(
                f"a download is not the expected file: {fault}; is the Maven repository a mirror "
                "that serves other files?"
            )
        digests = {jar.name: _sha256(jar) for jar in _jars_in(out)}
        (out / _LIST).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
        # A broken older folder is removed first: rename needs the path free.
        shutil.rmtree(target, ignore_errors=True)
        out.rename(target)


def _run_ivy(java: Java, ivy: Path, description: Path, out: Path, timeout_s: int) -> str | None:
    """Run Ivy once; return None, or the text of its error."""
    home = cache_folder() / "ivy"
    settings = os.environ.get("HOLDFAST_IVY_SETTINGS")
    command = [
        str(java.executable),
        # Java takes its home from the password file, not from HOME: set holdfast's.
        f"-Duser.home={home}",
        f"-Divy.default.ivy.user.dir={home}",
        "-XX:TieredStopAtLevel=1",
        "-jar",
        str(ivy),
        *(["-settings", settings] if settings else ["-m2compatible"]),
        *("-cache", str(home / "cache")),
        *("-ivy", str(description)),
        *("-confs", "default"),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{out}/[artifact]-[revision](-[classifier]).[ext]"),
        "-warn",
    ]
    try:
        answer = subprocess.run(  # noqa: S603 - our own arguments, no shell
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s} s"
    text = answer.stdout + answer.stderr
    failed = answer.returncode != 0 or "UNRESOLVED DEPENDENCIES" in text or "FAILED" in text
    return text if failed else None


def _failure(coordinates: Sequence[str], answer: str | None) -> str:
    lines = [line.strip(" :\t") for line in (answer or "").splitlines()]
    reasons = [
        line
        for line in lines
        if re.search(r"not found|access error|UnknownHost|refused|timed out|no answer", line)
    ]
    reason = reasons[0] if reasons else (lines[-1] if lines else "Ivy retrieved nothing")
    return (
        f"cannot fetch {', '.join(coordinates)} ({reason}): is a Maven repository reachable? "
        "HOLDFAST_IVY_SETTINGS names a mirror, HOLDFAST_JARS a folder that has the jars already"
    )


def _ivy_xml(coordinates: Sequence[str], without: Collection[str]) -> str:
    dependencies = []
    for coordinate in coordinates:
        organisation, module, revision = coordinate.split(":")
        dependencies.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(module)} "
            f'rev={quoteattr(revision)} conf="default->default"/>'
        )
    excludes = [f"<exclude module={quoteattr(module)}/>" for module in sorted(set(without))]
    return "\n".join(
        [
            '<ivy-module version="2.0">',
            '<info organisation="holdfast" module="jars" revision="1"/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>",
            *dependencies,
            *excludes,
            "</dependencies>",
            "</ivy-module>",
        ]
    )


def _pyspark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JavaError("PySpark is not installed: pip install 'kafka-holdfast[spark]'")
    return Path(next(iter(spec.submodule_search_locations))) / "jars"


def _ivy_jar() -> Path:
    found = sorted(_pyspark_jars().glob("ivy-*.jar"))
    if not found:
        raise JavaError(f"{_pyspark_jars()} has no ivy-*.jar: is this a whole PySpark?")
    return found[-1]


def _modules_of_pyspark() -> set[str]:
    """Return the module names of PySpark's jars (``slf4j-api-2.0.16.jar`` -> ``slf4j-api``)."""
    names = (re.match(r"(.+?)-\d[^/]*\.jar$", jar.name) for jar in _pyspark_jars().glob("*.jar"))
    return {match.group(1) for match in names if match is not None}
