"""Start the Spark session; no other module does.

**Rules.** An existing setting (``spark-submit --conf``, ``spark-defaults.conf``, an existing
session, ``conf=``) is never replaced. The rest of the pipeline takes ``spark`` as an argument and
touches neither ``sparkContext`` nor ``_jvm``, so it runs on Spark Connect too. A call into the JVM
that names one of Kafka's secret settings is logged without its text.

**Strategy.** Defaults are chosen for one machine: a local master, no UI, UTC, Arrow batches
bounded by bytes. ``useDeprecatedOffsetFetching`` must be set before a Kafka source is created:
without it Spark plans no partition of the offsets topic and reads nothing, with no error.

In a command, Ctrl-C raises a ``KeyboardInterrupt`` as without Spark. PySpark installs a handler of
SIGINT of its own while it starts a session in the main thread, and has no option against that; the
handler calls the JVM, mostly during another call, and then both calls fail. So
:func:`open_session` replaces ``signal.signal``, while the session starts, by a function that
installs no handler of SIGINT. The JVM ignores SIGINT: the cleanup here still needs it.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.errors import JavaError, SourceError, is_interrupt
from holdfast.local.jars import MSK_LOGIN, connector_jars, connector_of, delta_jars, msk_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("holdfast.spark")

CALL_LOGS: Final = ("py4j.clientserver", "py4j.java_gateway")
"""Loggers to which py4j writes calls into the JVM at DEBUG, as whole texts."""
HIDDEN: Final = "a call with a login (not shown)"
_SECRET: Final = re.compile(r"jaas|password|secret|token|keystore\.|credential", re.IGNORECASE)

RUNTIME_CONF: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
}
"""Settings that a running session takes too."""

DELTA_CONF: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A log of ours has a few hundred files; Delta's 50 tasks to read one cost more than the write.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def get_session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    kafka: bool = False,
    msk_region: str | None = None,
    delta: bool = True,
    remote: str | None = None,
    app_name: str = "holdfast",
) -> SparkSession:
    """Return the active session, or start one.

    Parameters
    ----------
    master : str, optional
        Spark's master; by default ``local[*]``, unless one is set.
    conf : mapping, optional
        Settings of the caller; they win over our defaults.
    kafka : bool
        Put the Kafka connector on the class path, as jars from the cache that
        holdfast fills (or from ``HOLDFAST_JARS``), unless jars are set already.
    msk_region : str, optional
        Region of a cluster of Amazon MSK with logins by IAM: put Amazon's login
        (``aws-msk-iam-auth``, fetched once) on the class path, too, and sign for this region.
    delta : bool
        Put Delta Lake there too, with its settings, so that ``spark.read.format("delta")`` reads
        the tables. A session of spark-submit, or with jars of its own, is left as it is. If the
        jars (7.5 MB, fetched once) are not to be had, a warning is logged, and the session starts
        without them.
    remote : str, optional
        Address of a Spark Connect server (``sc://host``), or ``local[2]`` for a server that is
        started here and ends with this process.
    app_name : str
        Name in Spark's own pages and logs.

    Raises
    ------
    JavaError
        No usable Java, or the connector cannot be downloaded.
    """
    from pyspark.sql import SparkSession  # a command without Spark imports this module, too

    for name in CALL_LOGS:
        logging.getLogger(name).addFilter(without_logins)  # which adds a filter once
    wanted = dict(conf or {})
    active = SparkSession.getActiveSession()
    if active is not None:
        return _with_runtime_conf(active, wanted)
    address = remote or os.environ.get("SPARK_REMOTE")
    if address and not address.startswith("local"):
        builder = SparkSession.builder.remote(address)
        return _with_runtime_conf(builder.getOrCreate(), wanted)
    taken = already_set()
    chosen = address or master or {**taken, **wanted}.get("spark.master") or "local[*]"
    _prepare_environment(chosen)
    with _java(chosen):
        settings = {
            "spark.app.name": app_name,
            **_defaults(chosen, {*wanted, *taken}, kafka=kafka, msk_region=msk_region, delta=delta),
        }
        settings = {key: value for key, value in settings.items() if key not in taken}
        settings.update(wanted)
        if master is not None:
            settings["spark.master"] = master
        builder = SparkSession.builder
        if address:
            builder = builder.remote(address)
            del settings["spark.master"]
        for key, value in settings.items():
            builder = builder.config(key, value)
        return _with_runtime_conf(builder.getOrCreate(), wanted)


def without_logins(record: logging.LogRecord) -> bool:
    """Hide the text of a call that names a secret; the record itself stays.

    The text has a line with an option's key and one with its value: the key decides, whatever the
    value.
    """
    if _SECRET.search(record.getMessage()):
        record.msg, record.args = HIDDEN, ()
    return True


@contextmanager
def _java(master: str) -> Iterator[None]:
    """Choose the Java of the driver's JVM, which must be started while the block runs."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # it runs already
        yield
        return
    from holdfast.local.java import java_for_spark

    with java_for_spark(is_local=master == "local" or master.startswith("local[")):
        yield


def _defaults(
    chosen: str,
    given: Collection[str],
    *,
    kafka: bool,
    msk_region: str | None = None,
    delta: bool,
) -> dict[str, str]:
    log_config = Path(__file__).with_name("log4j2.properties")
    defaults = {
        **RUNTIME_CONF,
        "spark.master": chosen,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_config.as_uri()}",
    }
    if msk_region:
        # Amazon's jar takes a region of a broker's name, of the environment or of this property.
        defaults["spark.driver.extraJavaOptions"] += f" -Daws.region={msk_region}"
        defaults["spark.executor.extraJavaOptions"] = f"-Daws.region={msk_region}"
    if chosen.startswith("local"):
        n_tasks = str(4 * local_cores(chosen))
        defaults["spark.sql.shuffle.partitions"] = n_tasks
        # Spark would merge them into about as many as there are cores: then one core ends alone.
        defaults["spark.sql.adaptive.coalescePartitions.minPartitionNum"] = n_tasks
        defaults["spark.driver.memory"] = "2g"
        # Rows come from Python and go to Python: loops that Spark writes for a plan, which Java has
        # to compile, cost more than they spare.
        defaults["spark.sql.codegen.wholeStage"] = "false"
        defaults["spark.driver.host"] = "127.0.0.1"
    if (kafka or msk_region or delta) and not {"spark.jars", "spark.jars.packages"} & set(given):
        import pyspark

        jars = connector_jars(pyspark.__version__, note=_log.warning) if kafka else []
        jars += msk_jars(note=_log.warning) if msk_region else []
        if delta and (more := _delta_jars(pyspark.__version__)):
            jars += more
            defaults.update(DELTA_CONF)
        defaults["spark.jars"] = ",".join(map(str, jars))
    return defaults


def _delta_jars(pyspark_version: str) -> list[Path]:
    """Return Delta Lake's jars; none where they cannot help or are not to be had."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return []  # the JVM of spark-submit has its class path already
    try:
        return delta_jars(pyspark_version, note=_log.warning)
    except JavaError as error:
        _log.warning("no Delta Lake: spark.read.format('delta') cannot work here; %s", error)
        return []


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def local_cores(master: str) -> int:
    """Return a master's cores: ``local`` 1, ``local[3]`` 3, ``local[*]`` this machine's; or 1."""
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1


def _prepare_environment(master: str) -> None:
    """Set Spark's Python and address, unless they are set already."""
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def already_set() -> dict[str, str]:
    """Return settings of spark-submit, or of ``spark-defaults.conf``."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf, SparkContext

        # Without its JVM a SparkConf of Python's own is empty, and knows nothing of --conf.
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    found: dict[str, str] = {}
    home = os.environ.get("SPARK_HOME")
    for folder in (os.environ.get("SPARK_CONF_DIR"), home and f"{home}/conf"):
        file = Path(folder) / "spark-defaults.conf" if folder else None
        if file is not None and file.is_file():
            found.update(parse_defaults(file.read_text(encoding="utf-8")))
            break
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "").split()
    for flag, value in pairwise(arguments):
        if flag in ("--conf", "-c") and "=" in value:
            key, _, setting = value.partition("=")
            found[key.strip("\"'")] = setting.strip("\"'")
        elif flag == "--master":
            found["spark.master"] = value
    return found


def parse_defaults(text: str) -> dict[str, str]:
    """Read ``spark-defaults.conf``: ``key value`` or ``key=value``, ``#`` starts a comment."""
    settings: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, *value = re.split(r"[ \t=]+", line, maxsplit=1)
        if value:
            settings[key] = value[0]
    return settings


def _with_runtime_conf(spark: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    for key, value in RUNTIME_CONF.items():
        if key not in wanted and spark.conf.get(key, None) is None:
            spark.conf.set(key, value)
    return spark


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn an error of Spark, its JVM or the connector into a SourceError of one line.

    Errors of our own tasks pass unchanged.
    """
    import pyspark
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # has no stubs
    from pyspark.errors import PySparkException, PythonException

    try:
        yield
    except PythonException as error:
        # A task of ours raised it in a worker; the last line of the text is the error itself.
        name = f"{SourceError.__module__}.{SourceError.__qualname__}: "
        said = [line for line in str(error).splitlines() if line.strip().startswith(name)]
        if not said:
            raise
        raise SourceError(said[-1].strip().removeprefix(name)) from error
    except (PySparkException, Py4JError, pa.ArrowException) as error:
        chain: BaseException = error
        while isinstance(chain, pa.ArrowException) and chain.__context__ is not None:
            chain = chain.__context__  # the JVM's own error is behind a stream that was cut short
        cause = _deepest(str(chain))
        if "Failed to find data source: kafka" in cause:
            cause = (
                "its session has no Kafka connector; start it with holdfast.spark.get_session("
                f"kafka=True), or with spark.jars.packages={connector_of(pyspark.__version__)}"
            )
        if "software.amazon.msk.auth" in cause:
            cause = (
                f"{cause}: without Amazon's jar its session cannot log in; start it with "
                f"holdfast.spark.get_session(kafka=True, msk_region=REGION), or add {MSK_LOGIN} to "
                "spark.jars.packages"
            )
        raise SourceError(f"Spark could not read {what}: {cause}") from error


def _deepest(text: str) -> str:
    """Return the innermost cause in the text of a Java error, or its first line."""
    causes = [line.strip() for line in text.splitlines() if line.strip().startswith("Caused by:")]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return causes[-1].removeprefix("Caused by: ") if causes else first


LOGGERS: Final = ("", *CALL_LOGS)
"""Loggers of py4j that report failed calls; a filter on a logger does not reach its children."""


def open_session(**options: Any) -> Any:
    """Start :func:`holdfast.fleet.pipeline.session.get_session` without PySpark's own handler."""
    install = signal.signal

    def keep(signalnum: int | signal.Signals, handler: Any) -> Any:
        if signalnum == signal.SIGINT and handler is not signal.SIG_IGN:
            return signal.getsignal(signalnum)
        return install(signalnum, handler)

    for name in LOGGERS:
        logging.getLogger(name).addFilter(not_interrupted)
    signal.signal = keep
    try:
        return get_session(**options)
    finally:
        signal.signal = install


def running_session() -> Callable[[], Any] | None:
    """Return a function that returns the running session; None without one. Imports no Spark."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    return None if active is None else lambda: active


def not_interrupted(record: logging.LogRecord) -> bool:
    """Return whether a record concerns no KeyboardInterrupt and no error that follows one."""
    return not is_interrupt(record.exc_info[1] if record.exc_info else None)
