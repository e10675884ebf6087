"""An app of three processes on one topic, bounced one after the other while records come in.

Pods have a name, and every start of a pod is a process with a new name, as in a Deployment:
``a-1``, later ``a-2``. A framework's app writes down each record that it has processed; who owned
what is taken from the coordinator's own log, and not from the app.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError
from tests.live.crew import Topic
from tests.live.offsets_log import Commit, Generation, read_group
from tests.live.processes import Processes
from tests.live.waiting import PATIENCE_SECONDS, until

from holdfast.cli.demo.event_log import EventLogReader

PODS = ("a", "b", "c")
N_PARTITIONS = 12
EVERY_S = 0.1
"""Between two records of a partition."""


class RollingApp(Processes):
    """Processes of one app, its topic, and what came of them.

    Parameters
    ----------
    bootstrap : str
        The broker.
    command : list of str
        Starts the app; topic, group, process and event log are appended.
    folder : Path
        For event logs, and for what the processes say.
    """

    def __init__(self, bootstrap: str, command: list[str], folder: Path):
        super().__init__(folder)
        self.bootstrap, self.command = bootstrap, command
        self._records = Topic(self.bootstrap, N_PARTITIONS)
        self.topic, self.sent = self._records.name, self._records.sent
        self.group = f"g-{self.topic}"
        self._groups = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        self._event_log = EventLogReader(self.folder)
        self._enough = threading.Event()
        self._producing = threading.Thread(target=self._produce, daemon=True)
        self._producing.start()

    def _produce(self) -> None:
        while not self._enough.wait(EVERY_S):
            self._records.produce(1, b"{}")

    def start(self, process: str) -> None:
        event_log = str(self.folder / f"{process}.jsonl")
        arguments = (self.bootstrap, self.topic, self.group, process, event_log)
        self.launch(process, [*self.command, *arguments], self.folder)

    def stop(self, name: str) -> int:
        code = super().stop(name)
        assert code == 0, f"{name} ended with {code}:\n{self.said(name)}"
        return code

    def stop_producing(self) -> None:
        """No more records; all that were written are on the broker."""
        self._enough.set()
        self._producing.join(PATIENCE_SECONDS)
        assert not self._producing.is_alive()

    def owned(self) -> dict[str, set[int]]:
        """Process -> partitions, as the coordinator has them; nothing while a round is on."""
        try:
            (found,) = self._groups.describe_groups([self.group]).values()
        except CoordinatorNotAvailableError:  # of a broker whose first group this is
            return {}
        if found["group_state"] != "Stable":
            return {}
        return {
            member["client_id"]: {
                partition
                for part in member["member_assignment"]["assigned_partitions"]
                for partition in part["partitions"]
            }
            for member in found["members"]
        }

    def processed(self) -> list[tuple[int, int, str]]:
        """(partition, offset, process) of all event logs, as they were written."""
        return [
            (entry.partitions[0], entry.first, entry.member)
            for entry in self._event_log.read()
            if entry.event == "batch"
        ]

    def await_spread(self) -> dict[str, set[int]]:
        """Wait until the running processes own everything, each the same number."""
        each = N_PARTITIONS // len(self.running)

        def spread() -> bool:
            self.check_alive()
            owned = self.owned()
            return owned.keys() == self.running.keys() and all(
                len(partitions) == each for partitions in owned.values()
            )

        until(spread, lambda: f"an even spread; now {self.owned()}{self._all_said()}")
        return self.owned()

    def await_news_of(self, partitions: set[int]) -> None:
        """Wait until a record was processed of each of these partitions from now on."""
        n_before = len(self.processed())
        self._await(
            lambda: partitions <= {p for p, _, _ in self.processed()[n_before:]},
            f"records of {sorted(partitions)}",
        )

    def await_everything(self) -> None:
        """Wait until every record that was sent is processed."""
        self._await(lambda: not self.unprocessed(), "every record is processed")

    def _await(self, condition: Callable[[], object], what: str) -> None:
        def check() -> object:
            self.check_alive()
            return condition()

        until(check, lambda: f"{what}; {len(self.unprocessed())} missing{self._all_said()}")

    def unprocessed(self) -> list[tuple[int, int]]:
        """(partition, offset) of what was sent and is in no event log."""
        seen = {(partition, offset) for partition, offset, _ in self.processed()}
        sent = ((p, offset) for p, n in self.sent.items() for offset in range(n))
        return [place for place in sent if place not in seen]

    def twice(self) -> dict[tuple[int, int], list[str]]:
        """(partition, offset) -> processes, of what is in the event logs more than once."""
        found: dict[tuple[int, int], list[str]] = {}
        for partition, offset, process in self.processed():
            found.setdefault((partition, offset), []).append(process)
        return {place: processes for place, processes in found.items() if len(processes) > 1}

    def log(self) -> list[Generation | Commit]:
        """Every finished round and every commit, as the coordinator wrote them down."""
        return read_group(self.bootstrap, self.group, self.topic)

    def _all_said(self) -> str:
        return "".join(f"\n--- {name}\n{self.said(name, 2000)}" for name in self.running)

    def __exit__(self, *failure: object) -> None:
        self._enough.set()
        super().__exit__(*failure)
        self._groups.close()


def was_in_flight(
    log: list[Generation | Commit], partition: int, offset: int, processes: list[str]
) -> bool:
    """Whether the first of two processes had not committed it when the other became the owner.

    What the coordinator wrote down between the last round in which the first one owned the
    partition and the first round in which another one did are commits of the first one.
    """
    if len(processes) > 2 or len(set(processes)) < 2:
        return False
    first = processes[0]
    owners = [
        (at, {name for name, owned in entry.owned.items() if partition in owned})
        for at, entry in enumerate(log)
        if isinstance(entry, Generation)
    ]
    last = max(at for at, names in owners if first in names)
    after = min((at for at, names in owners if at > last and names), default=len(log))
    commits = [entry for entry in log[:after] if isinstance(entry, Commit)]
    committed = max((c.offset for c in commits if c.partition == partition), default=0)
    return offset >= committed


def bounce_all(app: RollingApp) -> dict[str, set[int]]:
    """Start three pods, bounce each, and stop them; who owned what before the first bounce."""
    for pod in PODS:
        app.start(f"{pod}-1")
    before = app.await_spread()
    app.await_news_of(set(range(N_PARTITIONS)))
    for pod in PODS:
        app.stop(f"{pod}-1")
        staying = set().union(*(owned for name, owned in before.items() if name in app.running))
        app.await_news_of(staying)
        app.start(f"{pod}-2")
        before |= app.await_spread()
        app.await_news_of(set(range(N_PARTITIONS)))
    app.stop_producing()
    app.await_everything()
    for pod in PODS:
        app.stop(f"{pod}-2")
    return before
