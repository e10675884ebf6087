"""The checks of the chaos suite: every planted fault is found."""

from __future__ import annotations

import json
import socket

import pytest
from tests.live.chaos import late
from tests.live.cut import Cut
from tests.live.offsets_log import Commit, Generation
from tests.live.ownership_log import OwnershipLog


def ownership_log_of(folder, **event_logs):
    """The log of two partitions; times count up over all event logs, line by line."""
    clock = 0
    for name, lines in event_logs.items():
        with (folder / f"{name}.jsonl").open("w") as file:
            for line in lines:
                clock += 1
                file.write(json.dumps([float(clock), *line]) + "\n")
    found = OwnershipLog(folder, 2).read()
    found.close()
    return found


A_CLEAN = [
    ("assigned", [0]),
    ("batch", 0, 0, 4),
    ("revoked", [0]),
    ("commit", {"0": 5}),
    ("end",),
]


def test_a_clean_revocation(tmp_path):
    b = [("assigned", [0, 1]), ("batch", 0, 5, 9), ("batch", 1, 0, 2), ("revoked", [0, 1])]
    ownership_log = ownership_log_of(
        tmp_path, a=A_CLEAN, b=[*b, ("commit", {"0": 10, "1": 3}), ("end",)]
    )
    assert ownership_log.unread([10, 3]) == []
    assert ownership_log.read_too_often() == []
    assert ownership_log.two_owners(set()) == []
    assert ownership_log.in_flight.total() == 0
    log = [
        Generation(1, "a", {"a": {0}}),
        Commit(0, 5, "a"),
        Generation(2, "a", {"b": {0, 1}}),
        Commit(0, 10, "b"),
        Commit(1, 3, "b"),
    ]
    assert ownership_log.wrong_commits(log, [10, 3]) == []


def test_what_a_dead_member_had_not_committed_may_be_read_again(tmp_path):
    dead = [("assigned", [0]), ("batch", 0, 0, 4), ("commit", {"0": 3}), ("batch", 0, 5, 7)]
    ownership_log = ownership_log_of(tmp_path, a=dead, b=[("assigned", [0]), ("batch", 0, 3, 9)])
    assert ownership_log.duplicates()[0] == 5
    assert ownership_log.in_flight[0] == 5 + 7  # b is not committed either
    assert ownership_log.read_too_often() == []


def test_reading_again_what_was_committed_is_found(tmp_path):
    b = [("assigned", [0]), ("batch", 0, 4, 9), ("commit", {"0": 10}), ("end",)]
    ownership_log = ownership_log_of(tmp_path, a=A_CLEAN, b=b)
    assert ownership_log.read_too_often() == ["partition 0: 1 read again, 0 in flight"]


def test_a_hole_and_an_end_that_was_not_read_are_found(tmp_path):
    ownership_log = ownership_log_of(
        tmp_path, a=[("assigned", [0]), ("batch", 0, 0, 1), ("batch", 0, 3, 4)]
    )
    assert ownership_log.prefix(0) == 2
    assert len(ownership_log.unread([5, 1])) == 2


def write(folder, name, *lines):
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_loss_counts_from_when_nothing_more_is_handed_out(tmp_path):
    write(tmp_path, "a", (1.0, "assigned", [0]), (2.0, "dropped", [0]), (2.2, "lost", [0]))
    write(tmp_path, "b", (2.1, "assigned", [0]), (3.0, "revoked", [0]))
    assert OwnershipLog(tmp_path, 2).read().two_owners(set()) == []
    write(tmp_path, "a", (1.0, "assigned", [0]), (2.2, "lost", [0]))
    assert len(OwnershipLog(tmp_path, 2).read().two_owners(set())) == 1


def test_what_a_poll_hands_out_after_a_loss_is_found(tmp_path):
    held = [(1.0, "assigned", [0]), (2.0, "dropped", [0])]
    in_hand = (2.2, "batch", 0, 0, 4, 1.9)
    write(tmp_path, "a", *held, in_hand)
    assert OwnershipLog(tmp_path, 2).read().handed_out_late() == []
    back = [(2.3, "lost", [0]), (2.4, "assigned", [0]), (2.5, "batch", 0, 0, 4, 2.1)]
    write(tmp_path, "a", *held, in_hand, *back)
    assert OwnershipLog(tmp_path, 2).read().handed_out_late() == []
    write(tmp_path, "a", *held, (2.2, "batch", 0, 5, 9, 2.1))
    late = "partition 0: a was handed 5 0.100 s after it had lost it"
    assert OwnershipLog(tmp_path, 2).read().handed_out_late() == [late]


def test_two_owners_are_found_unless_allowed(tmp_path):
    a = [("assigned", [0]), ("end",)]
    ownership_log = ownership_log_of(tmp_path, a=a, b=[("assigned", [0])])
    assert ownership_log.two_owners(set()) == []
    (tmp_path / "c.jsonl").write_text('[1.5, "assigned", [0]]\n')
    ownership_log.read()
    assert len(ownership_log.two_owners(set())) == 2
    assert len(ownership_log.two_owners({("a", "c")})) == 1


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([Commit(0, 5, "a")], "None holds it"),
        ([Generation(1, "a", {"b": {0}}), Commit(0, 5, "a")], "b holds it"),
        ([Generation(1, "a", {"a": {0}}), Commit(0, 6, "a")], "unprocessed"),
        ([Generation(1, "a", {"a": {0}}), Commit(0, 5, "a"), Commit(0, 4, "a")], "after 5"),
        ([Generation(1, "a", {"a": {0}}), Commit(0, 4, "a")], "not committed to the end"),
    ],
    ids=["nobody's", "another's", "ahead", "backwards", "short"],
)
def test_wrong_commits_are_found(tmp_path, log, words):
    ownership_log = ownership_log_of(tmp_path, a=A_CLEAN)
    assert words in " ".join(ownership_log.wrong_commits(log, [5, 0]))


def test_a_round_that_withholds_a_partition_leaves_it_to_its_last_holder(tmp_path):
    ownership_log = ownership_log_of(tmp_path, a=A_CLEAN)
    log = [Generation(1, "a", {"a": {0}}), Generation(2, "a", {"a": set()}), Commit(0, 5, "a")]
    assert ownership_log.wrong_commits(log, [5, 0]) == []


def test_processes_of_one_static_member_follow_one_another(tmp_path):
    """The coordinator goes on calling the member by its first process's name."""
    b = [("assigned", [0]), ("batch", 0, 5, 9), ("commit", {"0": 10}), ("end",)]
    ownership_log = ownership_log_of(tmp_path, a=A_CLEAN, b=b)
    client_names = {"a": "static", "b": "static"}
    log = [Generation(1, "a", {"a": {0}}), Commit(0, 5, "a"), Commit(0, 10, "b")]
    assert ownership_log.wrong_commits(log, [10, 0], client_names) == []
    found = ownership_log.wrong_commits(
        [*log[:2], Commit(0, 5, "b"), Commit(0, 5, "a")], [5, 0], client_names
    )
    assert found == ["partition 0: a commits 5, b has its place"]


def test_bytes_wait_at_a_silent_cut_and_break_at_a_reset():
    with Cut() as cut, socket.create_server(("127.0.0.1", 0)) as server:
        cut.target = server.getsockname()
        with socket.create_connection(("127.0.0.1", cut.port), timeout=10) as client:
            far, _ = server.accept()
            with far:
                far.settimeout(10)
                client.sendall(b"one")
                assert far.recv(10) == b"one"
                cut.hold()
                client.sendall(b"two")
                far.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    far.recv(10)
                cut.mend()
                far.settimeout(10)
                assert far.recv(10) == b"two"
                cut.reset()
                assert client.recv(10) == b""
                assert far.recv(10) == b""
        with socket.create_connection(("127.0.0.1", cut.port), timeout=10) as refused:
            assert refused.recv(10) == b""
        assert cut.n_refused == 1


def test_a_group_that_settles_late_is_found():
    """Session and delay, then a margin; more where a node restarts or moves take their time."""
    took = {"kill -9 two": 26.0, "broker restart": 86.0}
    assert late("simple", took, 60) == []
    assert late("deferred", {name: s + 10 for name, s in took.items()}, 60) == []
    assert late("incremental", {name: s + 13.75 for name, s in took.items()}, 60) == []
    (text,) = late("simple", {**took, "SIGSTOP, SIGCONT": 26.1}, 60)
    assert text == "SIGSTOP, SIGCONT: settled after 26.1 s, not within 26.0 s"


def test_a_run_that_waits_in_vain_names_every_hole(tmp_path):
    ownership_log = ownership_log_of(
        tmp_path, a=[("assigned", [0]), ("batch", 0, 1, 2), ("batch", 0, 5, 5)]
    )
    assert ownership_log.holes(0, 9) == [(0, 0), (3, 4), (6, 8)]
    assert ownership_log.holes(0, 1) == [(0, 0)]
    assert ownership_log.holes(1, 2) == [(0, 1)]
    assert ownership_log.holes(1, 0) == []


def test_the_state_of_a_member_is_the_last_one_that_it_wrote(tmp_path):
    said = [("state", {"paused": "set()"}), ("state", {"paused": "{0}"})]
    assert ownership_log_of(tmp_path, a=said).states == {"a": {"paused": "{0}"}}
