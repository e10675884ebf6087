"""What the whole run shares: one real broker, one Spark session, each started once.

``make test`` and ``make test-all`` (``tools/run_tests.py``) run ``pytest --dist loadgroup``: all
tests that need one of them go to one worker each. The longest groups begin first.
"""

from __future__ import annotations

import ast
import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.live.cut import Cut
    from tests.live.security import Security
    from xdist.scheduler import Scheduling

    from holdfast.cluster.broker.broker import Broker

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


FIRST = ("spark", "broker 0", "broker 1", "browser", "trees")
"""The groups that take longest, which begin first: one that began late would end alone."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Give a worker whole files in `make test`.

    A worker that gets single tests makes the fixtures of a module that another worker has made,
    and the scheduler looks through thousands of pieces after each test. In `make test-all` single
    tests take minutes, so there they go one by one.
    """
    if "not every" not in config.option.markexpr:
        return None
    from xdist.scheduler import LoadGroupScheduling

    class WholeFiles(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).split("::")[0]

    return WholeFiles(config, log)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send the tests of the one Spark session to one worker, and those of the broker to others.

    Those of `make test` have one broker. Those of `make test-all` would be the longest way through
    a run if one worker took them all, so it has two; the files of one stay together. There a test
    whose processes have a Spark of their own runs beside the session, on any worker.
    """
    files = sorted({i.path for i in items if i.get_closest_marker("broker") is not None})
    broker_of = {path: f"broker {at % 2}" for at, path in enumerate(files)}
    for item in items:
        is_quick = item.get_closest_marker("every") is None
        is_spark = item.get_closest_marker("spark") is not None
        if is_spark:
            # PySpark leaves the sockets of what it collects to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
        if is_spark and (is_quick or "spark" in item.fixturenames):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("broker") is not None:
            group = "broker 0" if is_quick else broker_of[item.path]
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """When a test's group begins; the sort leaves the others as they were collected."""
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


@pytest.fixture(scope="session")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    """Certificates and users of the run's broker."""
    from tests.live.security import Security

    return Security.make(tmp_path_factory.mktemp("security"))


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Python's own handlers, as a program has them; Spark's session leaves one of its own."""
    ours = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in ours.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def cut() -> Iterator[Cut]:
    """The proxy before the broker's listener ``CUT``; whoever cuts it mends it."""
    from tests.live.cut import Cut

    with Cut() as made:
        yield made


@pytest.fixture(scope="session")
def broker(security: Security, cut: Cut) -> Iterator[Broker]:
    """One real broker for this process; use a topic and a group of your own.

    Beside its plain listener it has ``TLS``, ``SCRAM`` and ``PLAIN`` (both over TLS), ``OAUTH``,
    and ``CUT``, which is plain and behind a proxy.
    """
    from holdfast.cluster.broker.broker import Broker
    from holdfast.cluster.refused import mend_connects

    class ShortLived(Broker):
        """Java compiles it once and not again, better: that would take half of the CPU time."""

        def _java_command(self, *server: Any, **sizes: Any) -> list[str]:
            return [*super()._java_command(*server, **sizes), "-XX:TieredStopAtLevel=1"]

    mend_connects()  # tests ask the broker through bare clients, too
    with ShortLived.start(settings=security.broker_settings(cut.port)) as running:
        host, port = running.bootstrap_of("CUT").split(":")
        cut.target = host, int(port)
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
    """The one Spark session of the run, with the Kafka connector."""
    from holdfast.fleet.pipeline.session import get_session

    session = get_session(master="local[1]", kafka=True, conf={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
