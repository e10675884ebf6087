"""Write ``captured/KIND.jsonl`` and ``KIND.json``: groups of every kind, as a broker kept them.

    python tests/wire/capture_kinds.py [KIND ...]

Starts a broker and lets Kafka's own Java clients make a classic Streams group, a streams group
(KIP-1071), a share group (KIP-932) and a Connect group, and librdkafka one that migrates to KIP-848
and back, and Workers of our own. ``KIND.jsonl`` has the group's records in the form of
``offsets_topic.jsonl``, for a share group those of ``__share_group_state`` too (``"topic"``).
``KIND.json`` has the topics of the cluster, their begin and end offsets, and moments: what was
done, and what Kafka's tools said then (of Workers: the admin protocol, and the Workers themselves).
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from tests.live.kinds import Members, ask
from tests.pipeline.captured.capture import Stage
from tests.wire.capture import read_all

from holdfast import Resource, StopEvent, Worker
from holdfast.cluster.cluster import LiveCluster
from holdfast.local.broker import broker as brokers

FOLDER = Path(__file__).parent / "captured"
OFFSETS, SHARE_STATE = "__consumer_offsets", "__share_group_state"
PROPERTIES = {
    f"group.{kind}.{name}.ms": value
    for kind in ("consumer", "share", "streams")
    for name, value in {
        "min.session.timeout": "1000",
        "session.timeout": "6000",
        "min.heartbeat.interval": "100",
        "heartbeat.interval": "500",
    }.items()
}


class GroupCapture:
    """One group: what is done to it, and what is said of it then."""

    def __init__(self, broker: brokers.Broker, actors: Members, group: str):
        self.broker, self.actors, self.group = broker, actors, group
        self.bootstrap = broker.bootstrap
        (self.log,) = broker.logs
        self.moments: list[dict[str, Any]] = []
        self.ends: list[Callable[[], None]] = []  # done when all is written down

    def said(self) -> int:
        """Lines of the coordinator's log about this group."""
        text = self.log.read_text(errors="replace")
        return len(re.findall(rf"{re.escape(self.group)}(?![\w-])", text))

    def settle(self, before: int, quiet_s: float = 5, limit_s: float = 60) -> None:
        """Wait until the coordinator has said something, and then nothing for a while."""
        seen, since, limit = before, time.monotonic(), time.monotonic() + limit_s
        while time.monotonic() < limit:
            now = self.said()
            if now != seen:
                seen, since = now, time.monotonic()
            if seen > before and time.monotonic() - since > quiet_s:
                return
            time.sleep(0.2)
        print("nothing more was said of", self.group, file=sys.stderr)

    def do(self, what: str, action: Callable[[], object], **wait: float) -> None:
        """Do something and wait for what the coordinator makes of it."""
        before = self.said()
        action()
        self.settle(before, **wait)
        print(time.strftime("%T"), self.group, what, file=sys.stderr)

    def note(self, what: str, tool: str, views: dict[str, list[str]], **more: Any) -> None:
        """Write down what Kafka's tool says now."""
        own = ["--describe", "--group", self.group]
        said = {name: ask(tool, self.bootstrap, *own, *view) for name, view in views.items()}
        self.moments.append({"at_ms": int(time.time() * 1000), "what": what, **said, **more})


CONSUMER = {"members": ["--members", "--verbose"], "state": ["--state"], "offsets": ["--offsets"]}
VERBOSE = {name: [f"--{name}", "--verbose"] for name in ("members", "state", "offsets")}


def streams_classic(captured: GroupCapture) -> None:
    """Two processes with a standby each; a warm-up, a probing rebalance, a crash."""
    given = {"num_standby_replicas": "0", "acceptable_recovery_lag": "0"}
    given |= {"probing_rebalance_interval_ms": "60000", "session_timeout_ms": "6000"}
    given |= {"heartbeat_interval_ms": "500"}
    actors, group = captured.actors, captured.group
    captured.do("a starts", lambda: actors.streams("a", group, "orders", **given), quiet_s=8)
    captured.note("a runs", "consumer", CONSUMER)
    captured.do("b starts", lambda: actors.streams("b", group, "orders", **given), quiet_s=8)
    captured.note("b warms up", "consumer", CONSUMER)
    captured.do("probing", lambda: None, quiet_s=8, limit_s=100)
    captured.note("b runs", "consumer", CONSUMER)
    captured.do("b crashes", lambda: actors.kill("b"), quiet_s=8)
    captured.note("a alone", "consumer", CONSUMER)
    given["num_standby_replicas"] = "1"
    captured.do("a stops", lambda: actors.stop("a"))
    for name in ("c", "d"):
        made = lambda name=name: actors.streams(name, group, "orders", **given)  # noqa: E731
        captured.do(f"{name} starts", made, quiet_s=8)
    captured.note("a standby each", "consumer", CONSUMER)


def streams(captured: GroupCapture) -> None:
    """Two processes with standbys by the broker; one crashes, one comes anew."""
    actors, group = captured.actors, captured.group
    entity = ["--entity-type", "groups", "--entity-name", group, "--alter"]
    ask("configs", captured.bootstrap, *entity, "--add-config", "streams.num.standby.replicas=1")
    new = {"group_protocol": "streams"}
    for name in ("a", "b"):
        made = lambda name=name: actors.streams(name, group, "orders", **new)  # noqa: E731
        captured.do(f"{name} starts", made, quiet_s=10)
        captured.note(f"{name} runs", "streams", VERBOSE)
    captured.do("b crashes", lambda: actors.kill("b"), quiet_s=8)
    captured.note("a alone", "streams", VERBOSE)
    captured.do("c starts", lambda: actors.streams("c", group, "orders", **new), quiet_s=10)
    captured.note("a and c", "streams", VERBOSE)
    captured.do("a stops", lambda: actors.stop("a"), quiet_s=8)
    captured.note("c alone", "streams", VERBOSE)


def share(captured: GroupCapture) -> None:
    """Two members, a third one that leaves; records that were given back."""
    actors, group = captured.actors, captured.group
    entity = ["--entity-type", "groups", "--entity-name", group, "--alter"]
    ask("configs", captured.bootstrap, *entity, "--add-config", "share.auto.offset.reset=earliest")
    for name in ("a", "b", "c"):
        made = lambda name=name: actors.share(name, group, "pair")  # noqa: E731
        captured.do(f"{name} starts", made, quiet_s=8)
        captured.note(f"{name} runs", "share", VERBOSE)
    captured.do("c stops", lambda: actors.stop("c"), quiet_s=8)
    captured.note("a and b", "share", VERBOSE)
    captured.do("b crashes", lambda: actors.kill("b"), quiet_s=8)
    produce(captured.bootstrap, "pair", 300)
    time.sleep(5)
    actors.kill("a")
    time.sleep(1)
    produce(captured.bootstrap, "pair", 100)
    captured.note("work is left", "share", VERBOSE)


def connect(captured: GroupCapture) -> None:
    """Three workers, two connectors; one worker crashes and its work waits, another one leaves."""
    actors, group = captured.actors, captured.group
    given = {"scheduled_rebalance_max_delay_ms": "12000"}
    captured.do("w1 starts", lambda: actors.connect("w1", group, **given), quiet_s=6)
    sink = {
        "connector.class": "FileStreamSink",
        "tasks.max": "4",
        "topics": "orders",
        "file": str(actors.folder / "sink"),
    }
    source = {
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "topic": "orders",
        "file": str(actors.folder / "source"),
    }
    captured.do("sink", lambda: actors.request("w1", "/connectors/sink/config", sink))
    captured.do("source", lambda: actors.request("w1", "/connectors/source/config", source))
    _note_connect(captured, "w1 alone", "w1")
    captured.do("w2 starts", lambda: actors.connect("w2", group, **given), quiet_s=8)
    _note_connect(captured, "w1 and w2", "w1")
    captured.do("w3 starts", lambda: actors.connect("w3", group, **given), quiet_s=8)
    _note_connect(captured, "w1, w2 and w3", "w1")
    captured.do("w3 crashes", lambda: actors.kill("w3"), quiet_s=4)
    _note_connect(captured, "work of w3 waits", "w1")
    captured.do("the delay ends", lambda: None, quiet_s=8)
    _note_connect(captured, "the work of w3 is taken over", "w1")


def _note_connect(captured: GroupCapture, what: str, worker: str) -> None:
    status = {
        name: captured.actors.request(worker, f"/connectors/{name}/status")
        for name in ("sink", "source")
    }
    said = {"state": ["--state"]}
    captured.note(what, "consumer", said, status=status, urls=dict(captured.actors.urls))


def migrated(captured: GroupCapture) -> None:
    """Classic members, one of KIP-848 that makes them migrate, and the way back when it leaves."""
    stage, group = Stage(captured.broker), captured.group
    for name in ("c1", "c2", "c3"):
        stage.start(group, name, ["few"])
    captured.note("classic", "consumer", CONSUMER)
    stage.start(group, "n1", ["few"], **{"group.protocol": "consumer"})
    captured.note("migrated", "consumer", CONSUMER)
    stage.leave(group, "c3")
    captured.note("c3 left", "consumer", CONSUMER)
    stage.leave(group, "n1")
    captured.note("back to classic", "consumer", CONSUMER)
    stage.start(group, "n2", ["few"], **{"group.protocol": "consumer"})
    captured.note("migrated again", "consumer", CONSUMER)
    stage.crash(group, "n2")
    captured.note("back to classic by a crash", "consumer", CONSUMER)
    stage.leave(group, "c2")
    captured.note("c1 alone", "consumer", CONSUMER)
    captured.moments[-1]["told"] = stage.truth
    for process in stage.members.values():
        process.kill()


class Desk:
    """One holdfast.Worker in this process, and what it holds."""

    def __init__(self, captured: GroupCapture, name: str):
        settings = {"bootstrap.servers": captured.bootstrap, "group.id": captured.group}
        settings |= {"client.id": name, "holdfast.policy": "deferred"}
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        settings |= {"scheduled.rebalance.max.delay.ms": 5000}
        self.held: set[tuple[str, int]] = set()
        self.worker = Worker(settings, {"connector": 2, "task": 6}, self)
        self.worker.start()

    def on_assigned(self, resources: list[Resource]) -> None:
        self.held |= {(resource.kind, resource.number) for resource in resources}

    def on_revoked(self, resources: list[Resource]) -> None:
        self.held -= {(resource.kind, resource.number) for resource in resources}

    def on_lost(self, resources: list[Resource]) -> None:
        self.on_revoked(resources)


def worker(captured: GroupCapture) -> None:
    """Workers of our own under Design II: joins, one that goes and is waited for, one for good."""
    desks: dict[str, Desk] = {}

    def start(name: str) -> None:
        desks[name] = Desk(captured, name)

    def note(what: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=captured.bootstrap)
        (said,) = admin.describe_groups([captured.group]).values()
        admin.close()
        view = {name: said[name] for name in ("group_state", "protocol_type", "protocol_data")}
        view["members"] = {m["client_id"]: m["member_id"] for m in said["members"]}
        held = {name: sorted(desk.held) for name, desk in desks.items()}
        number = max(desk.worker.generation for desk in desks.values())
        moment = {"at_ms": int(time.time() * 1000), "what": what, "generation": number}
        captured.moments.append({**moment, "admin": view, "held": held})

    for name in ("w1", "w2", "w3"):
        captured.do(f"{name} starts", lambda name=name: start(name), quiet_s=6)  # type: ignore[misc]
        note(f"{name} runs")
    gone = desks.pop("w3")
    captured.do("w3 goes for a while", gone.worker.close, quiet_s=2)
    note("the work of w3 waits")
    captured.do("the delay ends", lambda: None, quiet_s=6)
    note("the work of w3 is taken over")
    gone = desks.pop("w2")
    captured.do("w2 goes for good", lambda: gone.worker.close(returns=False), quiet_s=6)
    note("w1 alone")
    desks.pop("w1").worker.close()


def failing(captured: GroupCapture) -> None:
    """Three workers of our own: a shard that starts nowhere, and one that w1 alone cannot start."""
    workers: dict[str, Worker] = {}

    def start(name: str) -> None:
        settings = {"bootstrap.servers": captured.bootstrap, "group.id": captured.group}
        settings |= {"client.id": name, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500}

        def run(resource: Resource, stop: StopEvent) -> None:
            if resource.number == 3:
                raise OSError("no such shard")
            if resource.number == 4 and name == "w1":
                raise MemoryError("no room here")
            stop.wait()

        workers[name] = Worker(settings, {"shard": 12}, run=run)
        workers[name].start()
        captured.ends.append(workers[name].close)

    def note(what: str) -> None:
        states = {
            name: {f"{r.kind}-{r.number}": s.status.value for r, s in worker.states.items()}
            for name, worker in workers.items()
        }
        members = {name: worker.metrics().member_id for name, worker in workers.items()}
        number = max(worker.generation for worker in workers.values())
        moment = {"at_ms": int(time.time() * 1000), "what": what, "generation": number}
        captured.moments.append({**moment, "states": states, "members": members})

    for name in ("w1", "w2", "w3"):
        captured.do(f"{name} starts", lambda name=name: start(name), quiet_s=12)  # type: ignore[misc]
        note(f"{name} runs")
    captured.do("all workers have tried", lambda: None, quiet_s=20, limit_s=40)
    note("all workers have tried")


def produce(bootstrap: str, topic: str, n: int) -> None:
    """Records with keys, spread over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(n):
        producer.produce(topic, key=str(i), value=str(i % 50))
    producer.flush(60)


def read(bootstrap: str, topic: str, group: str) -> list[dict[str, Any]]:
    """The group's records of a topic, in order."""
    named = len(group).to_bytes(2, "big") + group.encode()
    return [
        {**({} if topic == OFFSETS else {"topic": topic}), **row}
        for row in read_all(bootstrap, topic)
        if named in bytes.fromhex(row["key"] or "")
    ]


KINDS = {
    "streams_classic": streams_classic,
    "streams": streams,
    "share": share,
    "connect": connect,
    "migrated": migrated,
    "worker": worker,
    "failing": failing,
}


def capture(broker: brokers.Broker, kind: str) -> None:
    """Let one group live, and write it down."""
    group, bootstrap = f"group-{kind.replace('_', '-')}", broker.bootstrap
    with tempfile.TemporaryDirectory() as folder, Members(bootstrap, Path(folder)) as actors:
        captured = GroupCapture(broker, actors, group)
        try:
            KINDS[kind](captured)
        except BaseException:
            for file in sorted(Path(folder).glob("*.out")):
                print(file.name, file.read_text(errors="replace")[-1500:], file=sys.stderr)
            raise
        found = read(bootstrap, OFFSETS, group)
        if kind == "share":
            found += read(bootstrap, SHARE_STATE, group)
        snapshot = LiveCluster(bootstrap=bootstrap).snapshot()
        for end in captured.ends:
            end()
    lines = [json.dumps(row) for row in found]
    (FOLDER / f"{kind}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    own = re.compile(rf"{re.escape(group)}(?![\w-])")
    log = [line for line in captured.log.read_text().splitlines() if own.search(line)]
    about = {
        "group": group,
        "taken_at": snapshot.taken_at,
        "topics": [list(row) for row in snapshot.topics],
        "offsets": [list(row) for row in snapshot.offsets if not row[0].startswith("__")],
        "moments": captured.moments,
        "broker_log": [line for line in log if "GroupMetadataManager" in line],
    }
    (FOLDER / f"{kind}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Capture the kinds named, or all."""
    settings = brokers.BrokerSettings(properties=PROPERTIES)
    with brokers.Broker.start(settings=settings) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        sizes = {
            "orders": {"num_partitions": 4},
            "few": {"num_partitions": 6},
            "pair": {"num_partitions": 2},
        }
        admin.create_topics(sizes, wait_for_metadata=True)
        admin.close()
        produce(broker.bootstrap, "orders", 2_000)
        produce(broker.bootstrap, "few", 60)
        produce(broker.bootstrap, "pair", 500)
        for kind in sys.argv[1:] or KINDS:
            capture(broker, kind)


if __name__ == "__main__":
    main()
