"""Groups with open transactions in their partition of the offsets topic, on a broker.

Kafka's own tool reports the coordinator's count; every command reports the same, names the
transactions, and includes the commits of one that has ended. One transaction never ends: its
producer has died.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.cli.running import run
from tests.live.crew import Topic, commit_alone, commit_in, fresh, transaction
from tests.live.kinds import ask, tools
from tests.live.waiting import until
from tests.pipeline.kinds import printed
from tests.report.served import following, serving

from holdfast.cli.histories import OLD_TRANSACTION_S
from holdfast.core.wire.one.topic_ids import offsets_partition

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
ENDS = ("commit", "abort", "never")
"""How the transaction of each waiting group ends."""

DYING = """
import sys
from tests.live.crew import commit_in, transaction

bootstrap, group, topic, name = sys.argv[1:]
long = {"transactional.id": name, "transaction.timeout.ms": 900_000}
commit_in(transaction(bootstrap, **long), bootstrap, group, topic, 5)
print("open", flush=True)
sys.stdin.read()
"""
"""A producer that is killed while its transaction is open."""


def beside(group):
    """A name whose records are in the same partition of the offsets topic."""
    wanted = offsets_partition(group, 4)
    stem = fresh("beside")
    return next(n for i in count() if offsets_partition(n := f"{stem}-{i}", 4) == wanted)


def opened(bootstrap, group, topic, name):
    """A producer whose transaction, with a commit of 5, is open."""
    own = {"transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = transaction(bootstrap, **own)
    commit_in(producer, bootstrap, group, topic, 5)
    return producer


def left_open(bootstrap, group, topic, name):
    """Leave a transaction as a producer does that is killed."""
    command = [sys.executable, "-c", DYING, bootstrap, group, topic, name]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout.readline() == "open\n"
        finally:
            process.kill()


def producer_id(bootstrap, transactional_id):
    """Whose transaction it is, and that it goes on, as the transaction coordinator says."""
    words = ("describe", "--transactional-id", transactional_id)
    code, out, err = tools().ask(TRANSACTIONS, "--bootstrap-server", bootstrap, *words)
    assert code == 0, err
    head, row = (line.split() for line in out.splitlines() if line.strip())
    found = dict(zip(head, row, strict=False))  # a transaction has no topics of its own
    assert found["TransactionState"] == "Ongoing", out
    return int(found["ProducerId"])


def told_by_kafka(bootstrap, groups):
    """{group: committed offset} as Kafka's own tool prints it."""
    found = {}
    for group in groups:
        for row in printed(ask("consumer", bootstrap, "--describe", "--group", group)):
            if row["CURRENT-OFFSET"] != "-":
                found[group] = int(row["CURRENT-OFFSET"])
    return found


def passed(*words):
    return run(*words).passed()


@dataclass
class Fleet:
    """A group that works, one that is new, and those that wait for the end of transactions.

    What commands say while all transactions are open is read once; :attr:`later` ends some.
    """

    bootstrap: str
    folder: Path
    topic: str
    live: str = field(default_factory=lambda: fresh("live"))

    def __post_init__(self):
        self.newcomer = beside(self.live)
        self.waiting = {end: beside(self.live) for end in ENDS}
        self.groups = (self.live, self.newcomer, *self.waiting.values())
        self.at = ("-b", self.bootstrap)
        self.words = [word for group in self.groups for word in ("--group", group)]
        self.wanted = {self.live: 7, self.newcomer: 2}

    def begin(self):
        names = {end: fresh(end) for end in ENDS}
        commit_alone(self.bootstrap, self.live, {(self.topic, 0): 3})
        left_open(self.bootstrap, self.waiting["never"], self.topic, names["never"])
        self.producers = {
            end: opened(self.bootstrap, self.waiting[end], self.topic, names[end])
            for end in ("commit", "abort")
        }
        self.began = time.monotonic()
        commit_alone(self.bootstrap, self.live, {(self.topic, 0): 7})
        commit_alone(self.bootstrap, self.newcomer, {(self.topic, 0): 2})  # its first one
        self.named = {
            end: f"a transaction of producer {producer_id(self.bootstrap, names[end])} is open"
            for end in ENDS
        }
        until(lambda: time.monotonic() - self.began > OLD_TRANSACTION_S + 1, "they are old")

    def names(self, text, ends=ENDS):
        """Check that a command has named the open transactions, these and no others."""
        for end, group in self.waiting.items():
            counts = f"1 record of {group} counts once it is committed"
            assert (self.named[end] in text, counts in text) == (end in ends, end in ends), text

    def lag(self, *source, but=()):
        words = [w for group in self.groups if group not in but for w in ("--group", group)]
        done = passed("lag", *source, *words, "--format", "json")
        rows = done.rows()
        found = {row["group"]: row["current_offset"] for row in rows}
        return {group: at for group, at in found.items() if at is not None}, done.err

    @cached_property
    def dumped(self) -> Path:
        self.dumping = passed("dump", *self.at, "-o", self.folder / "dump").err
        return self.folder / "dump"

    @cached_property
    def watched(self) -> Path:
        self.watching = passed("watch", *self.at, "-o", self.folder / "tables").err
        self.metrics = metrics(self.folder / "tables")
        self.first_lag, self.lag_said = self.lag("--input", self.folder / "tables")
        return self.folder / "tables"

    @cached_property
    def later(self) -> dict[str, int]:
        """Commit one transaction, abort another one; what is committed then."""
        assert self.watched  # it was taken in before
        self.producers["commit"].commit_transaction(60)
        self.producers["abort"].abort_transaction(60)
        wanted = {**self.wanted, self.waiting["commit"]: 5}
        until(lambda: told_by_kafka(self.bootstrap, self.groups) == wanted, "the ends")
        return wanted


def metrics(folder):
    """``/metrics`` of a folder of tables."""
    with following(folder) as fleet, serving(fleet) as url:
        return urlopen(url + "/metrics", timeout=60).read().decode()


@pytest.fixture(scope="module")
def fleet(spark, broker, tmp_path_factory) -> Any:
    folder = tmp_path_factory.mktemp("open")
    found = Fleet(broker.bootstrap, folder, Topic(broker.bootstrap, 1, 10).name)
    found.begin()
    assert told_by_kafka(broker.bootstrap, found.groups) == found.wanted
    return found


def test_coordinators_count_what_is_committed(fleet):
    assert fleet.lag(*fleet.at)[0] == fleet.wanted


def test_a_dump_names_them_and_its_lag_leaves_nothing_out(fleet):
    assert fleet.dumped
    fleet.names(fleet.dumping)
    found, said = fleet.lag("--input", fleet.dumped)
    assert found == fleet.wanted
    fleet.names(said)


def test_a_history_has_every_commit_that_counts(fleet):
    table = ("--table", "offset_commits", "--format", "json")
    history = passed("history", *fleet.at, *fleet.words, *table)
    fleet.names(history.err)
    rows = history.rows()
    assert {(r["group"], r["offset"]) for r in rows} == {*fleet.wanted.items(), (fleet.live, 3)}


def test_the_doctor_names_them_and_finds_nobody_behind(fleet):
    doctor = passed("doctor", "--input", fleet.dumped, *fleet.words, "--format", "json")
    fleet.names(doctor.err)
    codes = {f["code"] for g in json.loads(doctor.out)["groups"] for f in g["findings"]}
    assert not {"HF105", "HF109", "HF125"} & codes


def test_watch_names_them_and_metrics_leave_nothing_out(fleet):
    assert fleet.watched
    fleet.names(fleet.watching)
    fleet.names(fleet.lag_said)
    assert fleet.first_lag == fleet.wanted
    name = "kafka_consumergroup_current_offset"
    for group in fleet.groups:
        line = f'{name}{{consumergroup="{group}",partition="0",topic="{fleet.topic}"}}'
        shown = [text for text in fleet.metrics.splitlines() if text.startswith(line)]
        assert shown == ([f"{line} {float(fleet.wanted[group])}"] if group in fleet.wanted else [])


def test_the_next_batch_takes_in_what_has_ended_and_one_goes_on(fleet):
    wanted = fleet.later
    assert fleet.lag(*fleet.at)[0] == wanted
    again = passed("watch", *fleet.at, "-o", fleet.watched)
    fleet.names(again.err, ["never"])
    aborted = fleet.waiting["abort"]  # nothing is left of its only record
    found, said = fleet.lag("--input", fleet.watched, but=[aborted])
    assert found == wanted
    fleet.names(said, ["never"])
    alone = run("lag", "--input", fleet.watched, "--group", fleet.waiting["never"])
    assert alone.code == 2 and "wait for the end of a transaction" in alone.err
    shown = metrics(fleet.watched)
    for end, group in fleet.waiting.items():
        assert (f'consumergroup="{group}"' in shown) == (end == "commit")


def test_a_dump_taken_later_names_the_one_that_goes_on(fleet):
    wanted = fleet.later
    done = passed("dump", *fleet.at, "-o", fleet.folder / "later")
    fleet.names(done.err, ["never"])
    assert fleet.lag("--input", fleet.folder / "later")[0] == wanted
