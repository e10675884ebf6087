"""The full chaos suite: ``python -m tests.live.chaos --design simple --brokers 1``.

Ten members, sixty partitions, constant records, every fault one after the other, for each design,
of ``holdfast.Consumer`` or of each ``--client``; prints one JSON line a run. The exit code is 1 if
anything was wrong. ``make soak ARGS="--only chaos"`` runs all of it, and with ``chaos-clients`` the
drop-ins; `make test` runs a short form (``test_chaos.py``), `make test-all` two more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from tests.live.clients import CLIENTS
from tests.live.cut import Cut
from tests.live.faults import ONE_BROKER, SPOILED, THREE_BROKERS, fire
from tests.live.member_group import CUT, POLL_SESSIONS, MemberGroup

from holdfast.local.broker import Broker, BrokerSettings
from holdfast.local.jars import KAFKA_VERSION

DESIGNS = ("eager", "simple", "deferred", "incremental")
SESSION_SECONDS = 6.0
DELAY_SECONDS = 10.0
MOVE_SECONDS = 0.5 / 8  # Design III here: eight partitions every half second
MARGIN_SECONDS = 20.0  # processes start, batches end, what was written meanwhile is read
KAFKA_SECONDS = 60.0  # a node stops and starts


def run(
    client: str, design: str, n_brokers: int, folder: Path, options: argparse.Namespace
) -> dict:
    """One design of one client on one cluster; event logs go to ``folder``."""
    faults = ONE_BROKER if n_brokers == 1 else THREE_BROKERS
    wanted = options.fault or faults
    with cluster(n_brokers, options.kafka) as (broker, cut):
        sizes = {
            "n_members": options.members,
            "n_partitions": options.partitions,
            "session_ms": int(1000 * SESSION_SECONDS),
            "delay_ms": int(1000 * DELAY_SECONDS),
        }
        with MemberGroup(
            broker, cut, folder, design=design, client=client, **sizes
        ) as member_group:
            try:
                known = faults | SPOILED
                chosen = {name: known[name] for name in known if name in wanted}
                found = fire(member_group, chosen, note=lambda text: print(text, file=sys.stderr))
            except AssertionError as error:  # waited in vain: the other runs go on
                return {"violations": [str(error)]}
            found["violations"] += late(design, found["settle_s"], options.partitions)
            return found


@contextmanager
def cluster(n_brokers: int, kafka: str) -> Iterator[tuple[Broker, Cut]]:
    """Brokers of one version, with a listener behind a proxy."""
    with Cut() as cut:
        settings = BrokerSettings(
            brokers=n_brokers,
            kafka=kafka,
            listeners={CUT: "PLAINTEXT"},
            advertised={CUT: (cut.port,) * n_brokers} if n_brokers == 1 else {},
        )
        with Broker.start(settings=settings) as broker:
            cut.target = _address(broker)
            yield broker, cut


def bound_seconds(design: str, fault: str, n_partitions: int) -> float:
    """Within what a group has settled after a fault, and has read what was written by then."""
    waits = DELAY_SECONDS if design in ("deferred", "incremental") else 0.0
    moves = MOVE_SECONDS * n_partitions if design == "incremental" else 0.0
    bounces = 5.0 * n_partitions if "bounce" in fault else 0.0  # many processes start
    nodes = KAFKA_SECONDS if "broker" in fault or "coordinator" in fault else 0.0
    polls = POLL_SESSIONS * SESSION_SECONDS if "poll loop" in fault else 0.0
    callbacks = 12 * SESSION_SECONDS if "callbacks" in fault else 0.0  # rounds, each with slow ones
    return SESSION_SECONDS + waits + moves + bounces + nodes + polls + callbacks + MARGIN_SECONDS


def late(design: str, settle_seconds: dict[str, float], n_partitions: int) -> list[str]:
    """Faults after which a group took longer than that."""
    bounds = {fault: bound_seconds(design, fault, n_partitions) for fault in settle_seconds}
    return [
        f"{fault}: settled after {took} s, not within {bounds[fault]} s"
        for fault, took in settle_seconds.items()
        if took > bounds[fault]
    ]


def _address(broker: Broker) -> tuple[str, int]:
    host, port = broker.bootstrap_of(CUT).split(",")[0].split(":")
    return host, int(port)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--design", choices=DESIGNS, action="append")
    parser.add_argument("--client", choices=CLIENTS, action="append")
    parser.add_argument("--brokers", type=int, choices=(1, 3), action="append")
    parser.add_argument("--kafka", default=KAFKA_VERSION, help="the version of the brokers")
    known = [*ONE_BROKER, *THREE_BROKERS, *SPOILED]
    parser.add_argument(
        "--fault", action="append", choices=known, help="without it: all but spoiled"
    )
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="keep every event log here")
    options = parser.parse_args()
    wrong = False
    clients = options.client or ["consumer"]
    for n_brokers in options.brokers or (1, 3):
        for client, design in product(clients, options.design or DESIGNS):
            began = time.monotonic()
            with _folder(options.folder, f"{client}-{design}-{n_brokers}") as folder:
                found = run(client, design, n_brokers, folder, options)
            took = round(time.monotonic() - began)
            row = {"client": client, "design": design, "brokers": n_brokers}
            row |= {"kafka": options.kafka, "members": options.members}
            row |= {"partitions": options.partitions, "seconds": took, **found}
            print(json.dumps(row), flush=True)
            wrong = wrong or bool(found["violations"])
    return int(wrong)


@contextmanager
def _folder(kept: Path | None, name: str) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as folder:
            yield Path(folder)
    else:
        (kept / name).mkdir(parents=True)
        yield kept / name


if __name__ == "__main__":
    sys.exit(main())
