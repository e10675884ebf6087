"""Stories: what two successive generations are taken to mean, example by example. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation, histories

from holdfast.fleet.pipeline.replay.run import actual_setting
from holdfast.fleet.pipeline.replay.trace import (
    EventType,
    GroupRows,
    GroupTrace,
    RecordedGeneration,
    RecordedMember,
)
from holdfast.fleet.pipeline.replay.trace_builder import (
    MAX_GENERATIONS,
    client_of,
    trace_of,
    traces,
)

CAPTURED = Path(__file__).with_name("captured") / "dump"


def rows_of(history, *, gaps=(), ended=None):
    """Rows of one group as the tables would give them; ``ended``: what is said of generations."""
    generations = []
    for g in history:
        row = RecordedGeneration(
            number=g["generation"],
            time_ms=int(g["timestamp"] * 1000),
            state=g["state"],
            group_type=g["group_type"],
            protocol=g["protocol"] if g["members"] else None,
            protocol_type=g["protocol_type"],
        )
        for member_id, value in sorted(g["members"].items()):
            extra, topics = value if isinstance(value, tuple) else ({}, value)
            row.members.append(
                RecordedMember(
                    member_id=member_id,
                    group_instance_id=extra.get("group_instance_id"),
                    client_id=extra.get("client_id", member_id.split("-")[0]),
                    client_host=extra.get("client_host", "/10.0.0.1"),
                    subscribed_topics=tuple(sorted(extra.get("subscribed_topics", topics))),
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=60_000,
                    owned=[(t, p) for t, ps in topics.items() for p in ps if p >= 0],
                )
            )
        generations.append(replace(row, **(ended or {}).get(row.number, {})))
    return GroupRows(group=history[0]["group"], generations=generations, gaps=list(gaps))


def told(history, topics=None, **more) -> GroupTrace:
    """The story of one group."""
    trace = trace_of(rows_of(history, **more), topics or {})
    assert trace is not None
    return trace


def done(trace):
    return [(h.event_type, h.slot, h.at_ms) for s in trace.sessions for h in s.events]


A, B = {"t": [0, 1]}, {"t": [2, 3]}


def gap(at_ms, last_seen, partitions, *, basis="eager", unowned_since=None):
    """A row of pauses that ended with a generation."""
    row = {"timestamp": at_ms, "last_seen": last_seen, "topic": "t", "partitions": partitions}
    return row | {"basis": basis, "unowned_since": unowned_since}


def test_a_member_that_goes_and_comes_back_keeps_its_identity():
    trace = told(
        [
            generation("g", 1, {"a-1": A, "b-1": B}, at=10),
            generation("g", 2, {"a-1": {"t": [0, 1, 2, 3]}}, at=30),
            generation("g", 3, {"a-1": A, "b-2": B}, at=50),
        ]
    )
    assert trace.identities == (0, 1, 1)
    assert done(trace) == [(EventType.STOP, 1, 19_500), (EventType.START, 2, 39_500)]
    assert trace.sessions[0].generations == ((0,), (0, 1))
    assert trace.moved == 4 and trace.n_rebalances == 2


def test_a_member_that_comes_back_too_late_is_another_one():
    trace = told(
        [
            generation("g", 1, {"a-1": A, "b-1": B}, at=10),
            generation("g", 2, {"a-1": A}, at=30),
            generation("g", 3, {"a-1": A, "b-2": B}, at=331),
        ]
    )
    assert trace.identities == (0, 1, 2)


def test_slots_are_in_the_order_of_the_member_ids():
    trace = told([generation("g", 1, {"b": A, "c": {}, "a": B})])
    assert trace.sessions[0].slots == (0, 1, 2) and trace.sessions[0].partitions == {"t": 4}
    assert trace.subscribed == {0: ("t",), 1: ("t",), 2: ()}


def test_silence_of_a_session_timeout_is_a_crash():
    """The last commit tells: 4 s before the record it said goodbye, 12 s before it it did not."""
    history = [
        generation("g", 1, {"a-1": A, "b-1": B}, at=10),
        generation("g", 2, {"a-1": {"t": [0, 1, 2, 3]}}, at=30),
    ]

    def seen(at_ms):
        return told(history, gaps=[gap(30_000, at_ms, [2, 3])])

    assert done(seen(26_000)) == [(EventType.STOP, 1, 19_500)]
    assert done(seen(18_000)) == [(EventType.CRASH, 1, 10_000)]
    assert done(seen(22_500)) == [(EventType.CRASH, 1, 12_500)]  # its last heartbeat came after it
    assert done(seen(10_000)) == [(EventType.STOP, 1, 19_500)]  # no sign but the record itself


def test_a_static_member_that_returns_in_time_makes_no_generation():
    one, two = (({"group_instance_id": f"i{n}"}, own) for n, own in enumerate((A, B)))
    history = [
        generation("g", 1, {"a-1": one, "b-1": two}, at=10),
        generation("g", 1, {"a-1": one, "b-2": two}, at=30),
    ]
    trace = told(history)
    assert trace.static and trace.identities == (0, 1) and trace.n_rebalances == 0
    stop, start = trace.sessions[0].events
    assert (stop.event_type, stop.slot, stop.returns) == (EventType.STOP, 1, True)
    assert (start.event_type, start.slot, start.expired) == (EventType.START, 1, False)
    late = told([history[0], {**history[1], "generation": 2}])
    crash, start = late.sessions[0].events
    assert (crash.event_type, crash.at_ms) == (EventType.CRASH, 10_000) and start.expired
    assert late.n_rebalances == 1 and late.moved == 0


def test_time_without_members_is_left_out():
    trace = told(
        [
            generation("g", 1, {"a-1": A}, at=10),
            generation("g", 2, {}, at=20),
            generation("g", 3, {"a-2": A}, at=4_000),
            generation("g", 4, {"a-2": A, "b-1": B}, at=4_010),
        ]
    )
    assert len(trace.sessions) == 2
    assert done(trace) == [(EventType.START, 2, 9_500)]


def test_subscriptions_and_partition_counts_change():
    wide = {"t": [0, 1, 2, 3]}
    history = [
        generation("g", 1, {"a-1": A}, at=10),
        generation("g", 2, {"a-1": wide}, at=20),
        generation("g", 3, {"a-1": ({"subscribed_topics": ["t", "u"]}, wide)}, at=30),
    ]
    grown = {"cause": "partition_count_change", "gap_seconds": (0.5, 2.0)}
    trace = told(history, {"t": 4, "u": 1}, ended={2: grown})
    (session,) = trace.sessions
    assert session.partitions == {"t": 2, "u": 1}
    resize, subscribe = session.events
    assert (resize.event_type, resize.topics, resize.count) == (EventType.RESIZE, ("t",), 4)
    assert (subscribe.event_type, subscribe.topics) == (EventType.SUBSCRIBE, ("t", "u"))
    assert (trace.gap_lower_seconds, trace.gap_upper_seconds) == (0.5, 2.0)


def test_the_delay_is_the_one_that_the_assignments_name():
    """A round after 1.7 s, because of something else, says nothing of a delay of 20 s."""
    deferred = {"protocol": "holdfast-deferred"}
    history = [
        generation("g", 1, {"a-1": A, "b-1": B}, at=10, **deferred),
        generation("g", 2, {"a-1": A}, at=20, **deferred),
        generation("g", 3, {"a-1": A}, at=21.7, **deferred),
        generation("g", 4, {"a-1": {"t": [0, 1, 2, 3]}}, at=40, **deferred),
    ]
    rows = rows_of(history)
    for row, delay_ms in zip(rows.generations, (9_000, 20_000, 18_300, -1), strict=True):
        row.delay_ms = delay_ms  # the first one paces moves: everything has an owner
    trace = trace_of(rows, {})
    assert trace is not None and trace.delay_ms == 20_000
    setting, note = actual_setting(trace, 300_000)
    assert (setting.delay_ms, note) == (20_000, "")
    silent = told(history)
    assert silent.delay_ms == -1
    assert actual_setting(silent, 300_000)[1] == "the delay is a guess"


def test_a_long_trace_is_cut_and_says_so():
    history = [generation("g", n, {"a-1": A}, at=n) for n in range(MAX_GENERATIONS + 5)]
    trace = told(history)
    assert trace.n_rebalances == MAX_GENERATIONS - 1
    assert trace.note == f"the newest {MAX_GENERATIONS} of {MAX_GENERATIONS + 5} generations"


def test_a_group_that_never_had_members_has_no_trace():
    assert trace_of(rows_of([generation("g", 1, {}, at=1)]), {}) is None


@given(history=histories())
def test_laws_of_stories(history):
    """Any history: times ascend, starts and stops alternate per slot."""
    for group in {g["group"]: None for g in history}:
        trace = trace_of(rows_of([g for g in history if g["group"] == group]), {})
        if trace is None:
            continue
        assert all(
            0 < size <= 4 * 12 + 1024 for s in trace.sessions for size in s.partitions.values()
        )
        for session in trace.sessions:
            here = set(session.slots)
            times = [h.at_ms for h in session.events]
            assert times == sorted(times) and all(time > 0 for time in times)
            for event in session.events:
                if event.event_type is EventType.START:
                    assert event.slot not in here
                    here.add(event.slot)
                elif event.event_type in (EventType.STOP, EventType.CRASH):
                    here.remove(event.slot)
                elif event.event_type is EventType.SUBSCRIBE:
                    assert event.slot in here
            identities = sorted(trace.identities[slot] for slot in here)
            if session.generations:
                assert identities == list(session.generations[-1])


@pytest.mark.parametrize("lags", [False, True])
def test_lags_are_read_only_where_they_are_requested(tmp_path, lags):
    record = ("g", 1, fleet.classic(generation("g", 1, {"a": A}, at=1)))
    commit = ("g", 2, fleet.commit("g", "t", 1, 5, at=2))
    fleet.write_dump(tmp_path / "d", [record, commit], offsets=[("t", p, 0, 9) for p in range(2)])
    (trace,) = traces(local.run(tmp_path / "d", tmp_path / "t", reset="earliest"), lags=lags)
    assert trace.lags == ({"t": (9, 4)} if lags else {})


@pytest.mark.parametrize("number", [2**31 - 1, 400_000_000])
def test_a_partition_that_cannot_be_makes_no_column_of_lags(tmp_path, number):
    record = ("g", 1, fleet.classic(generation("g", 1, {"a": {"t": [0, 1, number]}}, at=1)))
    ends = [("t", p, 0, 9) for p in range(2)]
    fleet.write_dump(tmp_path / "d", [record], offsets=ends)
    (trace,) = traces(local.run(tmp_path / "d", tmp_path / "t", reset="earliest"), lags=True)
    assert trace.lags == {"t": (9, 9, 0)}


def test_a_member_of_the_new_protocol_is_silent_for_the_brokers_session_before_it_is_removed():
    """No record has its session: 12 s of silence are a crash at sessions of 10 s, not of 45 s."""
    history = [
        generation("g", 1, {"a-1": A, "b-1": B}, at=10, kind="consumer", protocol="uniform"),
        generation("g", 2, {"a-1": A}, at=30, kind="consumer", protocol="uniform"),
    ]
    gaps = [gap(30_000, 18_000, [2, 3], basis="reconciled")]

    def departure(session_ms):
        rows = rows_of(history, gaps=gaps)
        rows.generations[0].members = [
            replace(m, session_timeout_ms=session_ms) for m in rows.generations[0].members
        ]
        return done(trace_of(rows, {}))[0][0]

    assert departure(10_000) is EventType.CRASH
    assert departure(45_000) is departure(None) is EventType.STOP


@pytest.mark.parametrize(
    ("cause", "how"),
    [
        ("leave", EventType.STOP),
        ("session_timeout", EventType.CRASH),
        ("join_and_leave", EventType.STOP),
    ],
)
def test_a_stated_cause_of_a_rebalance_says_how_its_members_went(cause, how):
    history = [
        generation("g", 1, {"a-1": A, "b-1": B}, at=10),
        generation("g", 2, {"a-1": {"t": [0, 1, 2, 3]}}, at=30),
    ]
    at_ms = 10_000 if how is EventType.CRASH else 19_500
    stated = {2: {"cause": cause, "is_stated": True}}
    assert done(told(history, ended=stated)) == [(how, 1, at_ms)]
    assert done(told(history, ended={2: {"cause": cause}})) == [(EventType.STOP, 1, 19_500)]


def killed(*, stayed_until_ms, again=(), client_id=""):
    """a is killed at 24 s and is back by the record of 30 s, when its session of 10 s is over."""
    history = [
        generation("g", 1, {"a-1": A, "b-1": B}, at=10),
        generation("g", 2, {"a-2": A, "b-1": B}, at=30),
        *again,
    ]
    gaps = [gap(30_000, 20_000, [0, 1]), gap(30_000, stayed_until_ms, [2, 3])]
    rows = rows_of(history, gaps=gaps)
    for row in rows.generations if client_id else ():
        row.members = [replace(m, client_id=f"{client_id}-{m.member_id[0]}") for m in row.members]
    return trace_of(rows, {})


def test_a_killed_member_came_back_when_the_others_fell_silent():
    assert done(killed(stayed_until_ms=23_000)) == [
        (EventType.CRASH, 0, 10_000),
        (EventType.START, 1, 13_000),
    ]


def test_without_such_evidence_it_came_back_after_its_usual_absence():
    crash = (EventType.CRASH, 0, 10_000)
    silent = killed(stayed_until_ms=10_000)
    assert done(silent) == [
        crash,
        (EventType.START, 1, 19_500),
    ]  # 10 s, if its record is no earlier
    away = [
        generation("g", 3, {"b-1": {"t": [0, 1, 2, 3]}}, at=50),
        generation("g", 4, {"a-3": A, "b-1": B}, at=54),
    ]
    usual = killed(stayed_until_ms=10_000, again=away)
    assert done(usual)[:2] == [crash, (EventType.START, 1, 14_000)]


@pytest.mark.parametrize(
    ("extra", "protocol", "client"),
    [
        ({"rack": ""}, "range", "confluent"),
        ({"client_id": "kafka-python-3.0.12"}, "range", "kafka-python"),
        ({"client_id": "consumer-g-1"}, "range", "java"),
        ({"client_id": "consumer-g-1"}, "holdfast-deferred", "holdfast"),
        ({"client_id": "app"}, "range", ""),
    ],
)
def test_what_members_run_is_known_by_what_only_one_client_writes(extra, protocol, client):
    rows = rows_of([generation("g", 1, {"a-1": A}, at=1, protocol=protocol)])
    (row,) = rows.generations
    row.members = [replace(m, **extra) for m in row.members]
    assert client_of(rows) == client


@pytest.mark.parametrize(
    ("last_seen", "how"), [(24_000, EventType.CRASH), (29_000, EventType.STOP)]
)
def test_a_member_of_a_kip848_group_that_fell_silent_before_another_epoch_has_crashed(
    last_seen, how
):
    """b joins at 26 s, a is gone at 30 s, and b has a's last partition by a record of 30.4 s."""
    steps = [
        {"a": {"t": [0, 1]}},
        {"a": {"t": [0]}, "b": {"t": [1]}},
        {"b": {"t": [0, 1]}},
    ]
    generations = [
        generation("g", n, members, at=at, kind="consumer", protocol="uniform")
        for n, (members, at) in enumerate(zip(steps, (10, 26, 30), strict=True), start=1)
    ]
    given = {"basis": "reconciled", "unowned_since": 30_000}
    gaps = [gap(26_300, 26_000, [1], **given), gap(30_400, last_seen, [0], **given)]
    rows = rows_of(generations, gaps=gaps)
    for row in rows.generations:
        row.members = [replace(m, session_timeout_ms=6_000) for m in row.members]
    trace = trace_of(rows, {"t": 2})
    assert [(h.event_type, h.slot) for h in trace.sessions[0].events] == [
        (EventType.START, 1),
        (how, 0),
    ]
