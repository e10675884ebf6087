"""A fleet that is made up from a seed, with what is true of it, as it was made up.

Every group lives through events of its own: members join, leave, restart soon or late, partitions
are added, topics asked for change, and at times nothing happens. What an event is called, who came
and went, who owned what before and after, where every group stands: all of it is written down when
it is made, in plain dictionaries, and not read back from the records.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.pipeline import fleet
from tests.pipeline.histories import COOPERATIVE, generation

EVENTS = ("join", "leave", "restart", "late_restart", "partitions", "topics", "nothing", "delete")
NAMES = ("plain", "../x", "", "é\u202e😀", "a\x00\n\t", "n" * 3_000, "=1+1", "batch=1", "%2e/..")
TOPICS = ("orders", "../../t", "c:\\t", "clicks 😀")


@dataclass
class Truth:
    """What is true of the fleet."""

    rebalances: list = field(default_factory=list)
    movements: list = field(default_factory=list)
    owners: dict = field(default_factory=dict)
    lag: list = field(default_factory=list)
    commits: int = 0
    bad: int = 0
    unknown: int = 0


class Group:
    """One group, classic or KIP-848."""

    def __init__(self, rng, name, kind):
        self.rng, self.name, self.kind = rng, name, kind
        self.number, self.born, self.at = 0, 0, 1_000 + rng.randrange(900)
        self.sizes = {t: rng.randrange(1, 9) for t in rng.sample(TOPICS, 2)}
        self.members, self.gone, self.owner = {}, [], {}
        self.last_owner, self.fresh = {}, True
        self.protocol = rng.choice(["range", COOPERATIVE])

    def new_member(self, client=None):
        self.born += 1
        client = client or f"c{self.born}"
        self.members[f"{client}-{self.born}"] = client

    def assign(self):
        """Everybody keeps what it has up to an even share; what is free goes where least is."""
        tps = [(t, p) for t, n in sorted(self.sizes.items()) for p in range(n)]
        share = -(-len(tps) // max(len(self.members), 1))
        held = {m: [] for m in sorted(self.members)}
        for tp in tps:
            owner = self.owner.get(tp)
            if owner in held and len(held[owner]) < share:
                held[owner].append(tp)
        taken = {tp for own in held.values() for tp in own}
        for tp in tps:
            if held and tp not in taken:
                min(held.values(), key=len).append(tp)
        return {tp: m for m, own in held.items() for tp in own}


def step(group, event, truth):
    """Let ``event`` happen; return the records of it, or none where it cannot happen."""
    before = set(group.members)
    rng, restarted, cause = group.rng, 0, event
    group.at += rng.randrange(5, 100)
    if event == "join":
        for _ in range(rng.choice([1, 1, 2])):
            group.new_member()
    elif event == "leave" and before:
        gone = rng.choice(sorted(before))
        group.gone.append((group.members.pop(gone), group.at))
    elif event == "restart" and before:
        client = group.members.pop(rng.choice(sorted(before)))
        group.new_member(client)
        restarted = 1
    elif event == "late_restart" and group.gone:
        client, _ = group.gone.pop()
        group.at += 1_000
        group.new_member(client)
        cause = "join"
    elif event == "partitions" and before:
        group.sizes[rng.choice(sorted(group.sizes))] += rng.randrange(1, 4)
        cause = "partition_count_change"
    elif event == "topics" and before and set(TOPICS) - set(group.sizes):
        group.sizes[rng.choice(sorted(set(TOPICS) - set(group.sizes)))] = rng.randrange(1, 4)
        cause = "subscription_change"
    elif event == "nothing" and before and not group.fresh:
        cause = "spurious"
    elif event == "delete" and before and group.kind == "classic":
        return delete(group)
    else:
        return []
    if event == "join":  # a newcomer is nobody's return
        group.gone = []
    group.number += 1
    now = group.assign()
    note(group, truth, cause, before, restarted, now)
    group.owner = now
    return records(group, before)


def delete(group):
    group.members, group.owner, group.last_owner, group.fresh = {}, {}, {}, True
    group.gone = []
    return [fleet.classic(generation(group.name, -1, {}, at=group.at, state="Dead"))]


def note(group, truth, cause, before, restarted, now):
    """Write down what this generation is in truth."""
    joined, left = set(group.members) - before, before - set(group.members)
    name, number = group.name, group.number
    moves = []
    for tp in sorted(set(now) | set(group.owner)):
        old, new, ever = group.owner.get(tp), now.get(tp), group.last_owner.get(tp)
        if group.fresh or old == new:
            continue
        if new is None:
            moves.append((name, number, *tp, old, None, "lost"))
        elif old is None:
            kind = "gained" if ever in (None, new) else "moved_through_gap"
            moves.append((name, number, *tp, None if kind == "gained" else ever, new, kind))
        else:
            moves.append((name, number, *tp, old, new, "moved"))
    truth.movements += moves
    count = {kind: sum(m[-1] == kind for m in moves) for kind in ("moved", "gained", "lost")}
    fresh = group.fresh
    truth.rebalances.append(
        {
            "group": name,
            "generation": number,
            "cause": "first_seen" if fresh else cause,
            "n_members": len(group.members),
            "n_joined": 0 if fresh else len(joined),
            "n_left": 0 if fresh else len(left),
            "n_restarted": 0 if fresh else restarted,
            "n_partitions": len(now),
            "n_moved": count["moved"],
            "n_gained": count["gained"],
            "n_lost": count["lost"],
        }
    )
    truth.owners.update({(name, number, *tp): m for tp, m in now.items()})
    group.last_owner.update(now)
    group.fresh = False


def records(group, before):
    """The generation as its family of records has it."""
    topics = {}
    for (topic, partition), member in sorted(group.owner.items()):
        topics.setdefault(member, {}).setdefault(topic, []).append(partition)
    asked = sorted(group.sizes)
    if group.kind == "classic":
        given = {
            m: ({"client_id": client}, {t: topics.get(m, {}).get(t, []) for t in asked})
            for m, client in group.members.items()
        }
        made = generation(group.name, group.number, given, at=group.at, protocol=group.protocol)
        return [fleet.classic(made)]
    found = []
    for member in sorted(before - set(group.members)):
        found += [fleet.tombstone(n, group.name, member) for n in (8, 7, 5)]
    found += [fleet.consumer_member(group.name, m, asked) for m in sorted(group.members)]
    found.append(fleet.consumer_epoch(group.name, group.number))
    found += [
        fleet.consumer_target(group.name, m, topics.get(m, {})) for m in sorted(group.members)
    ]
    return [*found, fleet.assignment_epoch(group.name, group.number)]


def fleet_of(seed, *, n_groups=9, n_events=14):
    """(records, offsets, topics, truth) of a fleet."""
    rng, truth, found = random.Random(seed), Truth(), []
    groups = []
    for i in range(n_groups):
        kind = "consumer" if i % 3 == 2 else "classic"
        group = Group(rng, f"{NAMES[i % len(NAMES)]}{i // len(NAMES) or ''}", kind)
        groups.append(group)
        for _ in range(n_events):
            event = rng.choice(EVENTS) if group.members else "join"
            found += [(group.name, group.at, made) for made in step(group, event, truth)]
    ends = {(t, p): rng.randrange(50, 99) for t in TOPICS for p in range(60)}
    found += [r for group in groups for r in commits_of(group, rng, ends, truth)]
    found += broken(rng, truth)
    found.sort(key=lambda record: record[1])
    offsets = [(t, p, 10, end) for (t, p), end in sorted(ends.items())]
    return found, offsets, [(t, 60) for t in TOPICS], truth


def commits_of(group, rng, ends, truth):
    """Commits of what the group owns in the end: live, deleted, beyond the end, or none."""
    made = []
    for tp, member in sorted(group.owner.items()):
        fate, at, end = rng.choice(["live", "live", "deleted", "none", "far"]), group.at, ends[tp]
        said = [rng.randrange(0, 50) for _ in range(rng.randrange(1, 4))] if fate != "none" else []
        said += [10**6] if fate == "far" else []
        for i, offset in enumerate(said):
            version = rng.choice([1, 2, 3, 4])
            value = fleet.commit(group.name, *tp, offset, at=at + i, version=version, expire=10**9)
            made.append((group.name, at + i, value))
        current = said[-1] if said else None
        if fate == "deleted":
            made.append((group.name, at + 9, fleet.commit(group.name, *tp, None, at=at + 9)))
            current = None
        behind, to_read = None, end - 10  # without a commit: no lag, but the whole log to read
        if current is not None:
            behind, to_read = end - min(max(current, 10), end), None
        truth.lag.append((group.name, *tp, current, end, behind, to_read, member))
    truth.commits += len(made)
    return made


def broken(rng, truth):
    """Records that do not parse, of both families, and one of a type that nobody knows."""
    whole = [
        fleet.commit("plain", "orders", 0, 1, at=1),
        fleet.classic(generation("plain", 1, {"m": {"t": [0]}}, at=1)),
        fleet.consumer_member("plain", "m", ["t"]),
    ]
    found = []
    for key, value in whole * 2:
        cut = rng.randrange(3, len(value) - 1)
        found.append(("plain", rng.randrange(900, 9_000), (key, value[:cut])))
    found += [("plain", 901, (b"\x00", b"x")), ("plain", 902, (None, b"x"))]
    truth.bad, truth.unknown = len(found), 1
    return [*found, ("plain", 903, (b"\x7f\xff\x00\x01g", b""))]


def compacted(records, keep_from):
    """What compaction leaves: of the records before ``keep_from`` only the last of each key."""
    last = {}
    for i, (_, at, (key, _)) in enumerate(records):
        if at < keep_from:
            last[key] = i
    return [r for i, r in enumerate(records) if r[1] >= keep_from or last.get(r[2][0]) == i]
