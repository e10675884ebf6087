"""Small histories of groups, and a slow and obvious twin of what the pipeline says about them."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.pipeline.fleet import classic, record_batch

from holdfast.fleet.pipeline.history.broker_log import messages
from holdfast.fleet.pipeline.history.broker_texts import statements_of
from holdfast.fleet.pipeline.ingest.decode_classic import generations
from holdfast.fleet.pipeline.ingest.generations import Generations, concat

COOPERATIVE = "cooperative-sticky"


def generation(
    group="g",
    number=1,
    members=None,
    *,
    at=0,
    protocol="range",
    state=None,
    kind="classic",
):
    """One generation: ``members`` is {member id: {topic: [partitions]}}, or (extra, ...)."""
    return {
        "group": group,
        "generation": number,
        "group_type": kind,
        "state": state or ("Stable" if members else "Empty"),
        "protocol_type": "consumer",
        "protocol": protocol,
        "leader": min(members) if members else None,
        "timestamp": at,
        "members": members or {},
    }


def build(history, first=0):
    """Generations as they are decoded from records, of which the first has this offset."""
    rows = [(0, first + i, int(g["timestamp"] * 1e6), *classic(g)) for i, g in enumerate(history)]
    return concat([Generations.empty(), *generations(record_batch(rows))]).sorted()


def read_statements(lines, groups):
    """What the lines of one log state about some groups."""
    return statements_of((entry.text for entry in messages(lines)), groups)


def owners(g):
    """{(topic, partition): member id}, the smallest id where two own it."""
    found = {}
    for member_id, value in sorted(g["members"].items(), reverse=True):
        _, topics = value if isinstance(value, tuple) else ({}, value)
        for topic, partitions in topics.items():
            for partition in partitions:
                if partition >= 0:
                    found[topic, partition] = member_id
    return found


def identity(g, member_id):
    value = g["members"][member_id]
    extra = value[0] if isinstance(value, tuple) else {}
    return ("i", extra["group_instance_id"]) if extra.get("group_instance_id") else ("m", member_id)


def twin_movements(history):
    """The table ``movements`` by dictionaries, as a sorted list of tuples."""
    rows = []
    for group in sorted({g["group"] for g in history}):
        last, previous, fresh = {}, {}, True
        for g in [g for g in history if g["group"] == group]:
            if g["state"] == "Dead":
                last, previous, fresh = {}, {}, True
                continue
            now = owners(g)
            for tp in sorted(set(now) | set(last)):
                before, after, old = previous.get(tp), now.get(tp), last.get(tp)
                was = old[1] if old else None
                is_ = identity(g, after) if after is not None else None
                if fresh or (before is None and after is None):
                    continue
                if before is not None and after is None:
                    row = (*tp, old[0], None, "lost")
                elif before is None and (was is None or was == is_):
                    row = (*tp, None, after, "gained")
                elif was == is_:
                    continue
                else:
                    kind = "moved" if before is not None else "moved_through_gap"
                    row = (*tp, old[0], after, kind)
                rows.append((group, g["generation"], *row))
            for tp, member_id in now.items():
                last[tp] = (member_id, identity(g, member_id))
            previous, fresh = now, False
    return sorted(rows, key=repr)


names = st.sampled_from(["t", "../x", "é\u202e", "a\x00b", "t" * 300])
partitions = st.lists(
    st.integers(0, 5) | st.sampled_from([10**6, 2**31 - 1]), max_size=4, unique=True
)
topics = st.dictionaries(names, partitions, max_size=2)
instances = st.sampled_from([None, None, "s0", "s1"])


@st.composite
def histories(draw, *, max_generations=12):
    """Generations of a few groups in one log, double owners and tombstones among them.

    A group that comes back after a tombstone counts its generations anew.
    """
    result, lives = [], {}
    for i in range(draw(st.integers(0, max_generations))):
        group = draw(st.sampled_from(["g", "../h", ""]))
        member_ids = draw(
            st.lists(st.sampled_from(["a-1", "a-2", "b-1", "😀"]), max_size=3, unique=True)
        )
        taken, members = set(), {}
        for member_id in member_ids:
            instance = draw(instances)
            if instance in taken:
                instance = None
            taken.add(instance)
            members[member_id] = ({"group_instance_id": instance}, draw(topics))
        dead = draw(st.integers(0, 4)) == 0
        number = i - lives.setdefault(group, 0)
        if dead:
            lives[group] = i
        result.append(
            generation(
                group,
                number,
                {} if dead else members,
                at=i * 10,
                state="Dead" if dead else None,
                protocol=draw(st.sampled_from(["range", COOPERATIVE])),
            )
        )
    return result
