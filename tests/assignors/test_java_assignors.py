"""Our rows against those of Kafka's own assignors (kafka-clients 4.3.1).

``range`` and ``roundrobin`` must agree row for row, always. The sticky ones must agree where Java's
outcome does not depend on the order of a hash map and nothing better exists: equal subscriptions,
no racks, no static ids (Java deals to members by member id whatever their instance id), no claims.
Elsewhere they must be at least as balanced and keep at least as much.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np
import pytest
from tests.assignors.java_assignors import VECTORS, Rows, Snapshot, ask_java, cases_of, rows_of

from holdfast.core.assignors.registry import assign
from holdfast.core.model import measure
from holdfast.core.model.columns import I32, NO_OWNER
from holdfast.core.model.group import Group

Case = tuple[str, Snapshot, Rows]


def committed() -> Iterator[Case]:
    for row in json.loads(VECTORS.read_text(encoding="utf-8")):
        yield row["assignor"], row["group"], row["assignment"]


def is_plain(group: Snapshot) -> bool:
    """Equal subscriptions, no racks, no static ids: where Kafka's sticky rows are a rule."""
    known = [set(member["topics"]) & set(group["partitions"]) for member in group["members"]]
    return all(topics == known[0] for topics in known) and not any(
        member["instance_id"] or member["rack"] for member in group["members"]
    )


def is_fresh(group: Snapshot) -> bool:
    return not any(member["owned"] for member in group["members"])


def owner_of(group: Group, rows: Rows) -> I32:
    column = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    for member, own in rows.items():
        for topic, partitions in own.items():
            first = group.topics.start[group.topics.index[topic]]
            column[first + np.array(partitions)] = group.member_ids.index(member)
    return column


def check(cases: Iterator[Case]) -> dict[str, int]:
    """Compare every case; the number of cases by assignor and kind of comparison."""
    seen: dict[str, int] = {}
    for name, snapshot, rows in cases:
        kind = "rows"
        if name in ("range", "roundrobin") or (is_plain(snapshot) and is_fresh(snapshot)):
            assert assign(Group.from_dict(snapshot), name).to_dict() == rows, (name, snapshot)
        else:
            kind = "goals"
            is_at_least_as_good(name, snapshot, rows)
        seen[f"{name} {kind}"] = seen.get(f"{name} {kind}", 0) + 1
    return seen


def is_at_least_as_good(name: str, snapshot: Snapshot, rows: Rows) -> None:
    """Balance, then (without racks) claims kept, wherever Java's rows are whole and valid.

    They are not whole in a cooperative round that withholds, and not valid where Java hands
    partitions to a member without topics.
    """
    group = Group.from_dict(snapshot)
    result = assign(group, name)
    ours, theirs = result.target, owner_of(group, rows)
    held = np.flatnonzero(theirs != NO_OWNER)
    is_whole = held.size == (ours != NO_OWNER).sum()
    if not is_whole or not group.is_subscribed(theirs[held], group.topics.topic_of[held]).all():
        return
    n = group.n_members
    score, their_score = (measure.balance_score(measure.loads(each, n)) for each in (ours, theirs))
    assert score <= their_score, (name, snapshot)
    if score == their_score and group.topics.rack_start is None:
        before = result.claims.owner
        kept, theirs_kept = (measure.count_kept(before, each) for each in (ours, theirs))
        assert kept >= theirs_kept, (name, snapshot)


def test_rows_equal_those_recorded_from_kafka() -> None:
    seen = check(committed())
    assert seen["range rows"] == seen["roundrobin rows"] == 20
    assert seen["sticky rows"] >= 3
    assert seen["sticky goals"] >= 20


def test_the_recorded_groups_are_those_of_the_generator() -> None:
    cases = [(name, group) for name, group, _ in committed()]
    assert cases == cases_of(range(20))


def test_an_answer_of_the_oracle_is_read_by_member_topic_and_partition() -> None:
    assert rows_of("b=;a=t1/2,t0/1,t1/0") == {"a": {"t0": [1], "t1": [0, 2]}, "b": {}}


@pytest.mark.broker
@pytest.mark.every
def test_rows_equal_those_of_kafka_on_hundreds_of_random_groups() -> None:
    from holdfast.local.jars import broker_jars
    from holdfast.local.java import find_java

    cases = cases_of(range(400))
    classpath = os.pathsep.join(str(jar) for jar in broker_jars())
    answers = ask_java(cases, classpath, str(find_java().executable))
    assert len(answers) == len(cases)
    seen = check((*case, rows) for case, rows in zip(cases, answers, strict=True))
    assert seen["range rows"] == seen["roundrobin rows"] == 400
    recorded = list(committed())
    assert [rows for _, _, rows in recorded] == answers[: len(recorded)]
