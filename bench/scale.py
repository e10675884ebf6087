"""A group of 2,000 members and 20,000 partitions on a stock broker: bytes, a rolling bounce, CPU.

``python bench/scale.py simple deferred deferred-static`` starts three brokers, makes the topics and
plays each case with as many members on raw connections, in one process: all join, then some are
closed and started again one after the other, and ``--killed`` of them end at once without a word
and are started again. A JSON line a case: what each of the bounced got back,
the largest record that the broker stored, the bytes of subscriptions and assignments in it, and CPU
seconds of a leader's round. The last line compares the bytes with those of ``simple``, which is
Kafka's cooperative-sticky. Three brokers, because a partition is an open file of its broker; with
``--no-topics`` one is enough (``--brokers 1``).

``--limit`` computes instead, without a broker, the most topics of a member at which the record of
each policy fits ``message.max.bytes``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.offsets_log import group_sizes
from tests.live.raw_crowd import Crowd, CrowdOptions

from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import Assignor, LeaderRound, MemberView
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES, estimate_group_bytes

STATIC = "-static"
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCase:
    """A group: so many members, each subscribed to so many of the topics in a row."""

    policy: str
    members: int
    topics: tuple[str, ...]
    partitions_each: int
    subscribed: int
    delay_ms: int

    def assignors(self) -> tuple[Assignor, ...]:
        """What the members offer."""
        policy = Policy(delay_ms=self.delay_ms, batch=1_000, interval_ms=1_000)
        return tuple(assignors_for(self.policy.removesuffix(STATIC), policy))

    def topics_of(self, slot: int) -> tuple[str, ...]:
        """A member's subscription."""
        n = len(self.topics)
        return tuple(sorted(self.topics[(slot + i) % n] for i in range(self.subscribed)))

    def partitions(self) -> dict[str, int]:
        """Partition counts."""
        return dict.fromkeys(self.topics, self.partitions_each)


def make_topics(bootstrap: str, case: ScaleCase) -> float:
    """Make the topics and wait until the brokers know them all; returns seconds."""
    from confluent_kafka.admin import AdminClient, NewTopic

    began = time.monotonic()
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for topic in case.topics:
        wanted = [NewTopic(topic, case.partitions_each, 1)]
        for future in admin.create_topics(wanted, request_timeout=120).values():
            future.result(120)
    while True:
        found = admin.list_topics(timeout=60).topics
        if sum(len(found[t].partitions) for t in case.topics if t in found) == len(case.topics) * (
            case.partitions_each
        ):
            return time.monotonic() - began
        time.sleep(1)


async def play(
    bootstrap: str, case: ScaleCase, n_bounced: int, n_killed: int, session_ms: int
) -> dict[str, Any]:
    """One case, live; what it says of a group that did not hold is in ``stopped_by``."""
    options = CrowdOptions(
        bootstrap=bootstrap,
        group=f"scale-{case.policy}-{case.members}-{case.subscribed}",
        assignors=case.assignors(),
        partitions=case.partitions(),
        topics_of=case.topics_of,
        static=case.policy.endswith(STATIC),
        session_ms=session_ms,
        heartbeat_ms=3_000,
    )
    crowd, began, stopped_by = Crowd(options), time.monotonic(), None
    same = unchanged = bounced = revived = 0
    await crowd.open()
    try:
        for slot in range(case.members):
            await crowd.start(slot)
        await crowd.until(crowd.even, "the first rounds", PATIENCE_SECONDS)
        before = {slot: crowd.owned(slot) for slot in crowd.members}
        step = max(1, case.members // n_bounced)
        for slot in [crowd.leader, *range(1, case.members, step)][:n_bounced]:
            await crowd.stop(slot)
            await crowd.start(slot)
            await crowd.until(crowd.settled, f"the return of {slot}", PATIENCE_SECONDS)
            bounced += 1
            same += crowd.owned(slot) == before[slot]
        killed = [*range(2, case.members, step)][:n_killed]
        for slot in killed:
            crowd.members[slot].end()
        for slot in killed:
            await crowd.start(slot)
        await crowd.until(crowd.settled, "the return of the killed", PATIENCE_SECONDS)
        revived = sum(crowd.owned(slot) == before[slot] for slot in killed)
        unchanged = sum(crowd.owned(slot) == had for slot, had in before.items())
    except AssertionError as error:
        stopped_by = str(error)
    finally:
        crowd.close()
        await asyncio.sleep(0)
    largest = max(crowd.rounds, key=lambda leader_round: leader_round.record_bytes)
    return {
        "bounced": bounced,
        "bounced_have_what_they_had": same,
        "killed": n_killed,
        "killed_have_what_they_had": revived,
        "members_have_what_they_had": unchanged,
        "rounds": len(crowd.rounds),
        "message_bytes": largest.subscription_bytes + largest.assignment_bytes,
        "record_bytes_estimated": largest.record_bytes,
        "record_bytes_stored": max(group_sizes(bootstrap, options.group), default=0),
        "turn_cpu_seconds": spread([leader_round.cpu_seconds for leader_round in crowd.rounds]),
        "errors": {f"{kind} {code}": n for (kind, code), n in sorted(crowd.errors.items())},
        "wall_seconds": round(time.monotonic() - began, 1),
        "stopped_by": stopped_by,
    }


def spread(values: list[float]) -> dict[str, float]:
    """Least, median and most."""
    found = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {name: round(value, 3) for name, value in found.items()}


def computed_bytes(case: ScaleCase) -> int:
    """Bytes of the record of a settled group, by two turns of a leader without a broker."""
    (assignor,) = case.assignors()
    ids = [f"member-{slot:05d}-{0:08d}-0000-4000-8000-{slot:012d}" for slot in range(case.members)]
    given: dict[str, bytes] = {}
    seen: list[JoinedMember] = []
    for generation in (1, 2):
        seen = []
        for slot, member_id in enumerate(ids):
            known = assignor.read(given[member_id]) if given else None
            owned = () if known is None else tuple(sorted(known.assigned))
            view = MemberView(
                topics=case.topics_of(slot),
                owned=owned,
                previous=owned,
                generation=generation - 1 if given else -1,
                nonce=generation,
                leader_state=None if known is None else known.leader_state,
            )
            seen.append(JoinedMember(member_id=member_id, metadata=assignor.subscribe(view)))
        leader_round = LeaderRound(
            members=tuple(seen),
            partitions=case.partitions(),
            generation=generation,
            leader_id=ids[0],
        )
        given = assignor.lead(leader_round)
    return estimate_group_bytes(
        [(m.member_id, None, len(m.metadata) + len(given[m.member_id])) for m in seen],
        group_id="scale",
        protocol_name=assignor.name,
    )


def find_limits(cases: list[ScaleCase]) -> None:
    """Print, for each case and number of topics a member, what the record comes to."""
    from dataclasses import replace

    for case in cases:
        for subscribed in range(1, len(case.topics) + 1):
            n_bytes = computed_bytes(replace(case, subscribed=subscribed))
            line = {
                "policy": case.policy,
                "members": case.members,
                "subscribed": subscribed,
                "record_bytes": n_bytes,
                "fits": n_bytes <= MESSAGE_MAX_BYTES,
            }
            print(json.dumps(line), flush=True)
            if n_bytes > MESSAGE_MAX_BYTES:
                break


def main() -> int:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "policies", nargs="+", metavar="POLICY", help="with -static: static members"
    )
    parser.add_argument("--members", type=int, default=2_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=20_000, help="of all topics together")
    parser.add_argument("--subscribed", type=int, default=1, help="topics a member")
    parser.add_argument("--bounced", type=int, default=20)
    parser.add_argument("--killed", type=int, default=0, help="at once, after the bounced")
    parser.add_argument("--session-ms", type=int, default=180_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--delay-ms", type=int, default=300_000)
    parser.add_argument("--no-topics", action="store_true", help="members are told counts only")
    parser.add_argument("--limit", action="store_true", help="compute where records end to fit")
    options = parser.parse_args()
    if not options.limit and options.members * options.subscribed % options.topics:
        parser.error(
            "--members times --subscribed must be a multiple of --topics: else no plan is even"
        )
    cases = [
        ScaleCase(
            policy=policy,
            members=options.members,
            topics=tuple(f"topic-{i:03d}" for i in range(options.topics)),
            partitions_each=options.partitions // options.topics,
            subscribed=options.subscribed,
            delay_ms=options.delay_ms,
        )
        for policy in options.policies
    ]
    if options.limit:
        find_limits(cases)
        return 0
    from holdfast.local.broker import Broker, BrokerSettings

    found: dict[str, dict[str, Any]] = {}
    with Broker.start(settings=BrokerSettings(brokers=options.brokers, heap_mb=768)) as broker:
        seconds = 0.0 if options.no_topics else make_topics(broker.bootstrap, cases[0])
        for case in cases:
            sizes = options.bounced, options.killed, options.session_ms
            found[case.policy] = asyncio.run(play(broker.bootstrap, case, *sizes))
            line = {
                "policy": case.policy,
                "members": case.members,
                "partitions": len(case.topics) * case.partitions_each,
                "topics": len(case.topics),
                "subscribed": case.subscribed,
                "topics_made_seconds": None if options.no_topics else round(seconds, 1),
                **found[case.policy],
                "load_average": round(os.getloadavg()[0], 1),
                **versions(),
            }
            print(json.dumps(line), flush=True)
    if "simple" in found:
        of = found["simple"]["message_bytes"]
        ratios = {p: round(f["message_bytes"] / of, 2) for p, f in found.items()}
        print(json.dumps({"message_bytes_beside_simple": ratios}), flush=True)
    return 0


def versions() -> dict[str, Any]:
    """Commit, Python and processors."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()
    return {"commit": commit, "python": platform.python_version(), "cpus": os.cpu_count()}


if __name__ == "__main__":
    sys.exit(main())
