"""Faults of a member group, and the checks after them.

**Rules.** A fault returns when the group has settled again: every living member owns partitions,
each partition has one owner, loads are within one, and everything written by then is processed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial

from tests.live.chaos_member import FAILED
from tests.live.crew import group_of
from tests.live.member_group import MemberGroup
from tests.live.waiting import until

Fault = Callable[[MemberGroup], None]


def start_all(member_group: MemberGroup) -> None:
    """Everybody at once."""
    for slot in range(member_group.n_members):
        member_group.start(slot)
    member_group.await_settled()


def bounce(member_group: MemberGroup) -> None:
    """One after the other ends in order and is started again, as in a deployment."""
    for slot in range(member_group.n_members):
        member_group.terminate(slot)
        member_group.start(slot)
    member_group.await_settled()


def kill_two(member_group: MemberGroup) -> None:
    """The leader and another one die; the others take over."""
    leader = member_group.leader()
    dead = {leader, 2 if leader == 1 else 1}
    member_group.crash(*dead)
    member_group.await_settled()
    for slot in dead:
        member_group.start(slot)
    member_group.await_settled()


def kill_and_return(member_group: MemberGroup) -> None:
    """One dies and is back at once, and so does a static one."""
    for slot in (0, member_group.static[0]):
        member_group.crash(slot)
        member_group.start(slot)
        member_group.await_settled()


def freeze(member_group: MemberGroup) -> None:
    """SIGSTOP until the others have taken over, then SIGCONT: a zombie."""
    # It owns nothing while it sleeps, whatever it believes when it wakes up.
    _rest_beyond_what_is_allowed(member_group, signal.SIGSTOP, signal.SIGCONT)


def stall(member_group: MemberGroup) -> None:
    """An application does not poll for longer than it may, with records in its hand."""
    # Its member has left; the application hears of it when it polls again.
    _rest_beyond_what_is_allowed(member_group, signal.SIGUSR1, signal.SIGUSR2)


def _rest_beyond_what_is_allowed(
    member_group: MemberGroup, stop: signal.Signals, go_on: signal.Signals
) -> None:
    """One rests until the others have what it had, which is then no longer its own."""
    slot, ownership_log = 0, member_group.ownership_log
    name = member_group.names[slot]
    member_group.send(slot, stop)
    when = time.time()
    try:
        member_group.await_settled(without={slot})
        ownership_log.note(name, when, "lost", ownership_log.held[name])
    finally:
        member_group.send(slot, go_on)
    member_group.await_settled()


def slow_callbacks(member_group: MemberGroup) -> None:
    """Two members whose callbacks last longer than their session; one of them ends, and is back."""
    member_group.callback_s = 1.2 * member_group.session_s
    try:
        for slot in (0, 1):
            member_group.terminate(slot)
            member_group.start(slot)
        member_group.await_settled()
    finally:
        member_group.callback_s = 0.0
    for slot in (0, 1):
        member_group.terminate(slot)
        member_group.start(slot)
    member_group.await_settled()


def restart_broker(member_group: MemberGroup, *, orderly: bool = True) -> None:
    """Stop one node in order, or kill it, and start it again."""
    member_group.broker.stop_node(1, orderly=orderly)
    member_group.broker.start_node(1)
    member_group.await_settled()


def pause_broker(member_group: MemberGroup) -> None:
    """The broker stands still for about a session, with all connections open."""
    for n_sessions in (0.95, 1.0, 1.05):
        for pid in member_group.broker.process_ids():
            os.kill(pid, signal.SIGSTOP)
        time.sleep(n_sessions * member_group.session_s)
        for pid in member_group.broker.process_ids():
            os.kill(pid, signal.SIGCONT)
        member_group.await_settled()


def cut_silently(member_group: MemberGroup) -> None:
    """Three members hear nothing for so long that they are out; then the late bytes arrive."""
    member_group.cut.hold()
    try:
        member_group.await_settled(without=member_group.behind)
        names = [member_group.names[slot] for slot in member_group.behind]
        until(
            lambda: not any(member_group.ownership_log.read().held[name] for name in names),
            "members behind the cut know that they lost everything",
        )
    finally:
        member_group.cut.mend()
    member_group.await_settled()


def cut_shortly(member_group: MemberGroup) -> None:
    """Three members' connections are broken, and refused for a moment."""
    before = member_group.cut.n_refused
    member_group.cut.reset()
    try:
        until(lambda: member_group.cut.n_refused >= before + 6, "members come knocking")
    finally:
        member_group.cut.mend()
    member_group.await_settled()


def huge_frames(member_group: MemberGroup) -> None:
    """For a moment every answer to three members begins with the length of a huge one.

    One length is more than any client takes, one is taken and never filled.
    """
    for n_bytes in (2**31 - 1, 64 * 2**20):
        _spoil(member_group, lambda data, n=n_bytes: n.to_bytes(4, "big") + data)


def flipped_bits(member_group: MemberGroup) -> None:
    """For a moment one bit of every answer to three members is wrong."""
    chance = random.Random(7)

    def flipped(data: bytes) -> bytes:
        at = chance.randrange(8 * len(data))
        spoiled = bytearray(data)
        spoiled[at // 8] ^= 1 << at % 8
        return bytes(spoiled)

    _spoil(member_group, flipped)


def _spoil(member_group: MemberGroup, spoils: Callable[[bytes], bytes]) -> None:
    """Spoil answers for about a session."""
    member_group.cut.spoils = spoils
    try:
        time.sleep(member_group.session_s)
    finally:
        member_group.cut.spoils = bytes
    member_group.await_settled()


def twin(member_group: MemberGroup) -> None:
    """A second process with the same group.instance.id; the first one has to go."""
    slot = member_group.static[-1]
    older = member_group.names[slot]
    newer = member_group.start(slot)
    # The older one hears of it at its next heartbeat.
    member_group.allowed_overlaps.add((older, newer))
    until(lambda: member_group.running[older].poll() is not None, "the older twin ends")
    assert member_group.gone(older) == FAILED, member_group.said(older)
    assert "group.instance.id" in member_group.ownership_log.read().failed[older]
    member_group.await_settled()


def lose_coordinator(member_group: MemberGroup, *, orderly: bool) -> None:
    """The group's coordinator stops in order, or is killed; another node takes over."""
    node = int(group_of(member_group.broker.bootstrap, member_group.group).coordinator.id)
    member_group.broker.stop_node(node, orderly=orderly)
    try:
        member_group.await_settled()
    finally:
        member_group.broker.start_node(node)
    member_group.await_settled()


ONE_BROKER: dict[str, Fault] = {
    "rolling bounce": bounce,
    "kill -9 two": kill_two,
    "kill -9, back at once": kill_and_return,
    "SIGSTOP, SIGCONT": freeze,
    "stalled poll loop": stall,
    "slow callbacks": slow_callbacks,
    "network cut": cut_silently,
    "connections reset": cut_shortly,
    "huge frames": huge_frames,
    "twin static ids": twin,
    "broker restart": restart_broker,
    "broker kill -9": partial(restart_broker, orderly=False),
    "broker SIGSTOP, SIGCONT": pause_broker,
}
SPOILED: dict[str, Fault] = {"flipped bits": flipped_bits}
"""What no member can make good without TLS: a wrong offset is as good as another."""
THREE_BROKERS: dict[str, Fault] = {
    "coordinator stops": partial(lose_coordinator, orderly=True),
    "coordinator kill -9": partial(lose_coordinator, orderly=False),
}


def fire(
    member_group: MemberGroup, faults: dict[str, Fault], *, note: Callable[[str], None] = print
) -> dict[str, object]:
    """Do all of these to a group whose members have not started, one after the other.

    Return figures, and ``violations``: everything that must not be. ``note`` is told how long each
    fault took.
    """
    start_all(member_group)
    settle_s, stop_s = {}, {}
    for name, fault in faults.items():
        begin = time.time()
        fault(member_group)
        end = time.time()
        settle_s[name] = round(end - begin, 1)
        stop_s[name] = round(member_group.ownership_log.longest_stop(begin, end), 1)
        note(f"{name}: settled after {end - begin:.1f} s")
    produced, wrong = member_group.finish()
    ownership_log = member_group.ownership_log
    return {
        "records": sum(produced),
        "read_again": sum(ownership_log.duplicates().values()),
        "in_flight": sum(ownership_log.in_flight.values()),
        "settle_s": settle_s,
        "longest_stop_s": stop_s,
        "violations": wrong,
    }
