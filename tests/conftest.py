"""What the whole run shares: one real broker, one Spark session, each started once.

A run with workers (``pytest -n``, ``tools/run_tests.py``) has ``--dist loadgroup``: all tests of
the session go to one worker. The broker is there for all workers
(``tests/live/run_broker.py``). The longest groups begin first.
"""

from __future__ import annotations

import ast
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.live.cut import Cut
    from tests.live.run_broker import RunBroker
    from tests.live.security import Security
    from xdist.scheduler import Scheduling


# The job of a shell in the background ignores SIGINT, and so would every program that a test starts
# and ends with a Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines: a shared machine is slow at times. `HYPOTHESIS_PROFILE` names another profile.
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=30, database=None
)
settings.register_profile("ci", deadline=None, max_examples=300, database=None)
settings.register_profile("exhaustive", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


if sys.version_info < (3, 11, 8):
    # gh-106905: all threads count the depth of a syntax tree in one place, so a parse fails with a
    # SystemError if the garbage collector interrupts it and another thread parses meanwhile. pytest
    # parses for each traceback, Playwright and Spark have threads.
    _parse = ast.parse

    def _parse_undisturbed(*arguments: Any, **options: Any) -> ast.AST:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return _parse(*arguments, **options)
        finally:
            if collecting:
                gc.enable()

    ast.parse = _parse_undisturbed


BROKER = "broker "
"""How the groups of tests with the run's broker begin: one for each file."""
BROKER_STARTS = 0.25
"""The part of a run in which no worker waits for the run's broker, which is fetched and starts."""
FIRST = ("spark", "browser", "trees")
"""The groups that take longest, which begin first: one that began late would end alone."""

_BROKER = pytest.StashKey["StartedForAll"]()
_IS_SPARK = pytest.StashKey[bool]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Give a worker whole files in `make test`; in `make test-all` single tests take minutes."""
    from tests.scheduling import OnceEach, WholeFiles

    return (WholeFiles if "not every" in config.option.markexpr else OnceEach)(config, log)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send the tests of the one Spark session to one worker, and a file of the broker's to one.

    In `make test-all` a test whose processes have a Spark of their own runs beside the session, on
    any worker. A test of the broker waits most of its time, so these files are dealt out evenly
    among those that compute.
    """
    waiting: dict[str, list[pytest.Item]] = {}
    first: list[pytest.Item] = []
    others: dict[str, list[pytest.Item]] = {}
    for item in items:
        is_quick = item.get_closest_marker("every") is None
        is_spark = item.get_closest_marker("spark") is not None
        if is_spark:
            # PySpark leaves the sockets of what it collects to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
        file = item.nodeid.split("::", maxsplit=1)[0]
        if is_spark and (is_quick or _uses_session(item)):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("broker") is not None:
            item.add_marker(pytest.mark.xdist_group(f"{BROKER}{file}"))
        if _turn(item) < len(FIRST):
            first.append(item)
        elif item.get_closest_marker("broker") is not None:
            waiting.setdefault(file, []).append(item)
        else:
            others.setdefault(file, []).append(item)
    turns = [*_dealt_out(waiting, begin=BROKER_STARTS), *_dealt_out(others, begin=0.0)]
    dealt = sorted(turns, key=lambda turn: turn[0])
    items[:] = [*sorted(first, key=_turn), *(item for _, file in dealt for item in file)]


def _uses_session(item: pytest.Item) -> bool:
    """Return whether a test takes the one Spark session, by its name or by a parameter."""
    chosen = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "spark" in item.fixturenames or "spark" in chosen


def _dealt_out(
    files: dict[str, list[pytest.Item]], *, begin: float
) -> list[tuple[float, list[pytest.Item]]]:
    """Each file's tests with their turn in a run that lasts from 0 to 1."""
    step = (1.0 - begin) / max(len(files), 1)
    return [(begin + at * step, tests) for at, tests in enumerate(files.values())]


def _turn(item: pytest.Item) -> int:
    """When a test's group begins."""
    mark = item.get_closest_marker("xdist_group")
    return FIRST.index(mark.args[0]) if mark and mark.args[0] in FIRST else len(FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let no collection of garbage walk through the tests and modules: these stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Start the broker of the workers, if a test of the run needs one."""
    if _BROKER not in node.config.stash and any(f"@{BROKER}" in name for name in ids):
        from tests.live.run_broker import StartedForAll

        folder = node.config._tmp_path_factory.getbasetemp()
        node.config.stash[_BROKER] = StartedForAll(folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End it."""
    if _BROKER in config.stash:
        config.stash[_BROKER].stop()


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note whether the worker's next broker is for tests that count what a whole cluster holds."""
    item.config.stash[_IS_SPARK] = item.get_closest_marker("spark") is not None


@pytest.fixture(scope="session")
def run_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the workers of a run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def certificates(run_folder: Path) -> Security:
    """Certificates and users of the run's broker."""
    from tests.live.security import Security

    return Security.of(run_folder)


@pytest.fixture
def security(certificates: Security, run_folder: Path) -> Iterator[Security]:
    """The same for a test of logins: nobody changes meanwhile what everybody may do."""
    from tests.live.run_broker import holding

    with holding(run_folder, "rights", alone=False):
        yield certificates


@pytest.fixture
def cut(broker: RunBroker, run_folder: Path) -> Iterator[Cut]:
    """The proxy before the broker's listener ``CUT``, for one test at a time."""
    from tests.live.cut import Cut
    from tests.live.run_broker import holding

    with holding(run_folder, "cut"), Cut(broker.cut_port) as made:
        made.target = ("127.0.0.1", broker.ports["CUT"])
        yield made


@pytest.fixture
def new_folder() -> Iterator[Callable[[], Path]]:
    """Make folders in memory, where there is some, for laws that commit hundreds of batches.

    A commit waits for the disk a dozen times; on a disk that brokers use, such a law waited 300 s.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if os.access(memory, os.W_OK) else None
    ) as all_of_it:
        yield lambda: Path(tempfile.mkdtemp(dir=all_of_it))


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Python's own handlers, as a program has them; Spark's session leaves one of its own."""
    ours = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in ours.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, certificates: Security, run_folder: Path
) -> Iterator[RunBroker]:
    """One real broker for the run; use a topic and a group of your own.

    The tests of the Spark session have another one: they count all that a cluster holds.
    """
    from tests.live.run_broker import started, started_for_all

    from holdfast.cluster.kafka_python_repairs import mend_connects

    mend_connects()  # tests ask the broker through bare clients, too
    if hasattr(request.config, "workerinput") and not request.config.stash[_IS_SPARK]:
        yield started_for_all(run_folder)
    else:
        with started(certificates) as running:
            yield running


@pytest.fixture(scope="session", autouse=True)
def _sockets_of_pyspark() -> Iterator[list[Any]]:
    """What PySpark opened to collect rows: it leaves the closing to the garbage collector."""
    from pyspark import util

    opened: list[Any] = []
    connect = util.local_connect_and_auth

    def connect_and_keep(*arguments: Any) -> tuple[Any, Any]:
        pair: tuple[Any, Any] = connect(*arguments)
        opened.extend(pair)
        return pair

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(util, "local_connect_and_auth", connect_and_keep)
        yield opened


@pytest.fixture(autouse=True)
def _close_sockets_of_pyspark(_sockets_of_pyspark: list[Any]) -> Iterator[None]:
    """Close them after the test that made them: a later one forbids warnings."""
    yield
    if _sockets_of_pyspark:
        for file_or_socket in _sockets_of_pyspark:
            file_or_socket.close()
        _sockets_of_pyspark.clear()
        gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the run, with the Kafka connector.

    Java compiles its classes once and not again, better: for small tables that is half of the work.
    """
    from holdfast.fleet.pipeline.session import get_session

    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    session = get_session(master="local[1]", kafka=True, conf=conf)
    yield session
    session.stop()
