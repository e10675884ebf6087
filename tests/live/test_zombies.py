"""Members that are stopped past their session with a batch in flight, and commit it late.

One process holds them all, each in a group of its own, so one stop and the waits of all cases
overlap. The offsets topic shows whether a commit moved a group back.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest
from tests.live.crew import ConsumerThread, Topic, admin_of
from tests.live.offsets_log import commits_by_group
from tests.live.processes import Processes
from tests.live.waiting import until
from tests.live.zombie_member import LOST_TEXT, N_HELD, Case

from holdfast import Worker
from holdfast.core.machine.codes import ErrorCode

pytestmark = pytest.mark.broker

SLICES = 7  # more members than that make a small machine lose their sessions
WAITS_S = (0, 0.5, 1, 2, 4, 8, 12)
ACTS = {
    "consumer": ("commit", "explicit", "after-poll", "poll", "close"),
    "worker": ("work", "save"),
}
OTHERS = ("stays", "leaves", "none")
REFUSED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


def cases(waits_s: Sequence[float], *, every: int, first: int = 0) -> list[Case]:
    """Every so many of all combinations, from the first one on."""
    cells = [
        (kind, wait_s, act, policy, static)
        for kind, acts in ACTS.items()
        for act, wait_s, policy, static in product(
            acts, waits_s, ("simple", "deferred"), (False, True)
        )
    ]
    return [
        Case(
            f"z{i}", *cell, (i + i // 4) % 2 == 0, "stays" if cell[0] == "worker" else OTHERS[i % 3]
        )
        for i, cell in enumerate(cells[first::every])
    ]


class Zombies(Processes):
    """The process, and the other members of its groups in this one."""

    def __init__(self, broker, folder: Path, cases: list[Case]):
        super().__init__(folder)
        self.bootstrap, self.cases = broker.bootstrap, cases
        self.topic = Topic(broker.bootstrap, 2, N_HELD)
        self._event_log = folder / "zombies.jsonl"
        self.consumer_threads: dict[str, ConsumerThread] = {}
        self.workers: dict[str, Worker] = {}
        self._open = ExitStack()
        words = [self.bootstrap, self.topic.name, str(self._event_log)]
        words += [json.dumps([asdict(c) for c in self.cases])]
        script = str(Path(__file__).with_name("zombie_member.py"))
        self.launch("zombies", [sys.executable, script, *words])
        self.process = self.running["zombies"]

    def __exit__(self, *failure):
        super().__exit__(*failure)
        self._open.close()

    def lines(self) -> dict[str, list[list]]:
        found = defaultdict(list)
        if self._event_log.exists():
            for line in self._event_log.read_text().splitlines():
                name, *words = json.loads(line)
                found[name].append(words)
        return found

    def await_line(self, event: str) -> dict[str, list]:
        """Wait until every case has written this line; the lines."""
        missing: list[str] = []

        def check() -> bool:
            lines = self.lines()
            broken = [w for words in lines.values() for w in words if w[0] == "broken"]
            assert not broken, broken[0][1]
            assert self.process.poll() is None or event == "ended"
            missing[:] = [c.name for c in self.cases if event not in {w[0] for w in lines[c.name]}]
            return not missing

        until(check, lambda: f"{event} of {missing}")
        return {
            name: next(w for w in words if w[0] == event) for name, words in self.lines().items()
        }

    def group(self, c: Case) -> str:
        return f"{self.topic.name}:{c.name}"

    def others(self, acts: tuple[str, ...]) -> None:
        """Start the other members of cases with these acts."""
        for c in self.cases:
            if c.other == "none" or c.act not in acts:
                continue
            config = {
                "holdfast_policy": c.policy,
                "scheduled_rebalance_max_delay_ms": 1_000,
                "heartbeat_interval_ms": 500,
            }
            if c.kind == "worker":
                settings = {k.replace("_", "."): v for k, v in config.items()}
                self.workers[c.name] = self._open.enter_context(
                    Worker(
                        {
                            "bootstrap.servers": self.bootstrap,
                            "group.id": self.group(c),
                            **settings,
                        },
                        {"shard": 2},
                    )
                )
            else:
                consumer_thread = ConsumerThread(
                    self.bootstrap, self.group(c), [self.topic.name], **config
                ).start()
                self._open.callback(consumer_thread.stop)
                self.consumer_threads[c.name] = consumer_thread

    def is_taken_over(self) -> bool:
        """Whether every zombie was removed, and the others have all, and have committed it."""
        empty = [self.group(c) for c in self.cases if c.other == "none"]
        if any(
            answer.result().members
            for answer in admin_of(self.bootstrap).describe_consumer_groups(empty).values()
        ):
            return False
        if any(len(worker.owned) < 2 for worker in self.workers.values()):
            return False
        places = [(self.topic.name, p) for p in range(2)]
        return all(
            set(consumer_thread.consumer.committed(places).values()) == {N_HELD}
            for consumer_thread in self.consumer_threads.values()
        )


@pytest.mark.parametrize(
    "cases",
    [
        cases((0, 2, 8), every=3),
        *(
            pytest.param(cases(WAITS_S, every=SLICES, first=n), marks=pytest.mark.slow)
            for n in range(SLICES)
        ),
    ],
    ids=["few", *(f"all_{n}" for n in range(SLICES))],
)
def test_what_was_handed_out_before_a_loss_is_refused_however_late_it_is(broker, tmp_path, cases):
    with Zombies(broker, tmp_path, cases) as zombies:
        started = {c.name for c in cases if c.act != "save"}
        until(lambda: started <= {n for n, w in zombies.lines().items() if w}, "all hold a batch")
        zombies.others(("save",))  # they take half, and the zombies' on_revoked runs
        zombies.await_line("held")
        zombies.process.send_signal(signal.SIGSTOP)
        zombies.others(("commit", "explicit", "after-poll", "poll", "close", "work"))
        until(zombies.is_taken_over, "the zombies are removed, and others have what they had")
        for c in cases:
            if c.other == "leaves":
                zombies.consumer_threads[c.name].stop()
        zombies.process.send_signal(signal.SIGCONT)
        acted = zombies.await_line("acted")
        zombies.topic.produce(5)
        until(lambda: unread(zombies) == {}, lambda: f"read on: {unread(zombies)}")
        zombies.process.send_signal(signal.SIGTERM)
        until(lambda: zombies.process.poll() is not None, "the process ends")
    for c in cases:
        check_acts(c, acted[c.name], zombies.lines()[c.name])
    assert any(LOST_TEXT in word for _, word, _ in acted.values())  # by the member itself
    check_commits(zombies)


def unread(zombies: Zombies) -> dict[str, int]:
    """Records of each group that nobody has read, apart from what the zombies held."""
    found = {}
    lines = zombies.lines()
    for c in zombies.cases:
        if c.kind == "worker" or (c.act == "close" and c.other != "stays"):
            continue
        consumer_thread = zombies.consumer_threads.get(c.name)
        places = {tuple(place) for w in lines[c.name] if w[0] == "read" for place in w[1]}
        places |= {
            (p, offset) for _, p, offset in (consumer_thread.read if consumer_thread else ())
        }
        if missing := sum(zombies.topic.sent.values()) - len(places):
            found[c.name] = missing
    return found


def check_acts(c: Case, acted: list, lines: list[list]) -> None:
    _, word, code = acted
    ended = next((w for w in lines if w[0] == "ended"), None)
    if c.kind == "worker":
        check_worker(c, word, ended, lines)
        return
    if c.act == "poll":
        assert word == ("told" if c.told else "logged"), c
    elif not c.told or c.act in ("commit", "explicit"):  # else the callback has told
        assert code in REFUSED, (c, word)
    if c.act != "close":
        assert ended == ["ended", "done", 0], (c, ended)


def check_worker(c: Case, word: str, ended: list, lines: list[list]) -> None:
    assert word == "stale", c
    told = next(w[1] for w in lines if w[0] == "told")
    assert told[0] == ["assigned", [0, 1]], (c, told)
    if c.act == "work":
        assert told[1] == ["lost", [0, 1]], (c, told)
        assert ended == ["ended", "done", 0], (c, ended)
    else:  # the other half was lost, too; of this half the application knows itself
        assert [kind for kind, _ in told[1:3]] == ["revoked", "lost"], (c, told)
        assert "before on_revoked had returned" in ended[1], (c, ended)


def check_commits(zombies: Zombies) -> None:
    """No group went back, and each has committed all that there is."""
    commits = commits_by_group(zombies.bootstrap, zombies.topic.name)
    for c in zombies.cases:
        if c.kind == "worker":
            continue
        for p in range(2):
            offsets = [
                found.offset for found in commits.get(zombies.group(c), []) if found.partition == p
            ]
            assert offsets == sorted(offsets), (c, p, offsets)
            if c.act != "close" or c.other == "stays":
                assert offsets[-1] == N_HELD + 5, (c, p, offsets)
