"""Programs that a signal ends: they commit, revoke, leave in order, and exit as users expect."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.live.crew import Topic, fresh, group_of
from tests.live.processes import Processes
from tests.live.waiting import until
from tests.live.working import committed
from tests.suites import further

pytestmark = pytest.mark.broker

MEMBER = Path(__file__).parent / "ending_member.py"
N_PARTITIONS, N_EACH = 3, 20
TERM, INT = signal.SIGTERM, signal.SIGINT


class Program(Processes):
    """A running program, and what it has said."""

    def __init__(self, broker, topic: str, group: str, shape: str, folder: Path):
        super().__init__(folder)
        self.shape = shape
        self.launch(shape, [sys.executable, str(MEMBER), broker.bootstrap, topic, group, shape])

    def said_words(self) -> list[list[str]]:
        return self.lines(self.shape)

    def count(self, word: str) -> int:
        return sum(line[:1] == [word] for line in self.said_words())

    def end(self, number: int) -> int:
        self.running[self.shape].send_signal(number)
        return self.gone(self.shape)


@pytest.mark.parametrize(
    ("shape", "number", "code"),
    further(
        [
            ("loop", TERM, 143),
            ("loop", INT, 130),
            ("poll", TERM, 143),
            ("close", TERM, 0),
            ("exit", TERM, 7),
            ("stop", TERM, 0),
            ("thread", TERM, 0),
        ]
    ),
)
def test_a_consumer_ends_in_order(broker, tmp_path, shape, number, code):
    topic, group = Topic(broker.bootstrap, N_PARTITIONS, N_EACH), fresh("ends")
    program = Program(broker, topic.name, group, shape, tmp_path)
    until(lambda: program.count("read") == N_PARTITIONS * N_EACH, "everything is read")
    found = program.end(number)
    assert found in (code, -number if number == INT else code), program.said_words()[-20:]
    assert program.said_words()[-1] != ["over"] or code == 0
    assert program.count("revoked") == 1, program.said_words()[-20:]
    # It has left, although its session lasts 45 s, and it has committed what it handled.
    assert not group_of(broker.bootstrap, group).members
    places = committed(broker.bootstrap, group, topic.name, N_PARTITIONS)
    handled = Counter(int(line[1]) for line in program.said_words() if line[:1] == ["read"])
    if shape in ("close", "exit"):  # the handler cannot tell whether the list is done
        assert all(0 <= max(at, 0) <= handled[n] for n, at in places.items())
    else:
        assert places == handled


@pytest.mark.parametrize("number", further([INT, TERM]))
def test_a_worker_ends_in_order(broker, tmp_path, number):
    group = fresh("works")
    program = Program(broker, "-", group, "worker", tmp_path)
    until(lambda: program.count("assigned"), "it works")
    code = program.end(number)
    assert code == (143 if number == TERM else -INT), program.said_words()
    assert ["revoked", "3"] in program.said_words()


def test_a_worker_that_cannot_begin_leaves_its_work_to_others(broker, tmp_path):
    """Before, it kept shards that nobody ran, and only its log said so."""
    group = fresh("works")
    broken = Program(broker, "-", group, "raises", tmp_path)
    until(lambda: broken.count("revoked") > 3, "each shard was tried again")
    assert ["OSError:", "no", "disk"] in broken.said_words()
    sound = Program(broker, "-", group, "worker", tmp_path)

    def taken():
        rows = [line for line in sound.said_words() if line[:1] == ["assigned"]]
        return sum(int(line[1]) for line in rows)

    until(lambda: taken() == 3, "another one has the work")
    assert sound.end(TERM) == 143
    assert broken.end(TERM) == 143
