"""What is done to a herd, and what comes of it.

**Rules.** A fault returns when the group has settled again: everybody who lives holds partitions,
each partition is held once, loads are within one, and everything written by then is processed.
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
from tests.live.herd import Herd
from tests.live.waiting import until

Fault = Callable[[Herd], None]


def start_all(herd: Herd) -> None:
    """Everybody at once."""
    for slot in range(herd.n_members):
        herd.start(slot)
    herd.await_settled()


def bounce(herd: Herd) -> None:
    """One after the other ends in order and is started again, as in a deployment."""
    for slot in range(herd.n_members):
        herd.terminate(slot)
        herd.start(slot)
    herd.await_settled()


def kill_two(herd: Herd) -> None:
    """The leader and another one die; the others take over."""
    leader = herd.leader()
    dead = {leader, 2 if leader == 1 else 1}
    herd.crash(*dead)
    herd.await_settled()
    for slot in dead:
        herd.start(slot)
    herd.await_settled()


def kill_and_return(herd: Herd) -> None:
    """One dies and is back at once, and so does a static one."""
    for slot in (0, herd.static[0]):
        herd.crash(slot)
        herd.start(slot)
        herd.await_settled()


def freeze(herd: Herd) -> None:
    """SIGSTOP until the others have taken over, then SIGCONT: a zombie."""
    # It owns nothing while it sleeps, whatever it believes when it wakes up.
    _rest_beyond_what_is_allowed(herd, signal.SIGSTOP, signal.SIGCONT)


def stall(herd: Herd) -> None:
    """An application does not poll for longer than it may, with records in its hand."""
    # Its member has left; the application hears of it when it polls again.
    _rest_beyond_what_is_allowed(herd, signal.SIGUSR1, signal.SIGUSR2)


def _rest_beyond_what_is_allowed(herd: Herd, stop: signal.Signals, go_on: signal.Signals) -> None:
    """One rests until the others have what it had, which is then no longer its own."""
    slot, ledger = 0, herd.ledger
    name = herd.names[slot]
    herd.send(slot, stop)
    when = time.time()
    try:
        herd.await_settled(without={slot})
        ledger.note(name, when, "lost", ledger.held[name])
    finally:
        herd.send(slot, go_on)
    herd.await_settled()


def slow_callbacks(herd: Herd) -> None:
    """Two members whose callbacks last longer than their session; one of them ends, and is back."""
    herd.callback_s = 1.2 * herd.session_s
    try:
        for slot in (0, 1):
            herd.terminate(slot)
            herd.start(slot)
        herd.await_settled()
    finally:
        herd.callback_s = 0.0
    for slot in (0, 1):
        herd.terminate(slot)
        herd.start(slot)
    herd.await_settled()


def restart_broker(herd: Herd, *, orderly: bool = True) -> None:
    """Stop one node in order, or kill it, and start it again."""
    herd.broker.stop_node(1, orderly=orderly)
    herd.broker.start_node(1)
    herd.await_settled()


def pause_broker(herd: Herd) -> None:
    """The broker stands still for about a session, with all connections open."""
    for n_sessions in (0.95, 1.0, 1.05):
        for pid in herd.broker.process_ids():
            os.kill(pid, signal.SIGSTOP)
        time.sleep(n_sessions * herd.session_s)
        for pid in herd.broker.process_ids():
            os.kill(pid, signal.SIGCONT)
        herd.await_settled()


def cut_silently(herd: Herd) -> None:
    """Three members hear nothing for so long that they are out; then the late bytes arrive."""
    herd.cut.hold()
    try:
        herd.await_settled(without=herd.behind)
        names = [herd.names[slot] for slot in herd.behind]
        until(
            lambda: not any(herd.ledger.read().held[name] for name in names),
            "members behind the cut know that they lost everything",
        )
    finally:
        herd.cut.mend()
    herd.await_settled()


def cut_shortly(herd: Herd) -> None:
    """Three members' connections are broken, and refused for a moment."""
    before = herd.cut.n_refused
    herd.cut.reset()
    try:
        until(lambda: herd.cut.n_refused >= before + 6, "members come knocking")
    finally:
        herd.cut.mend()
    herd.await_settled()


def huge_frames(herd: Herd) -> None:
    """For a moment every answer to three members begins with the length of a huge one.

    One length is more than any client takes, one is taken and never filled.
    """
    for n_bytes in (2**31 - 1, 64 * 2**20):
        _spoil(herd, lambda data, n=n_bytes: n.to_bytes(4, "big") + data)


def flipped_bits(herd: Herd) -> None:
    """For a moment one bit of every answer to three members is wrong."""
    chance = random.Random(7)

    def flipped(data: bytes) -> bytes:
        at = chance.randrange(8 * len(data))
        spoiled = bytearray(data)
        spoiled[at // 8] ^= 1 << at % 8
        return bytes(spoiled)

    _spoil(herd, flipped)


def _spoil(herd: Herd, spoils: Callable[[bytes], bytes]) -> None:
    """Spoil answers for about a session."""
    herd.cut.spoils = spoils
    try:
        time.sleep(herd.session_s)
    finally:
        herd.cut.spoils = bytes
    herd.await_settled()


def twin(herd: Herd) -> None:
    """A second process with the same group.instance.id; the first one has to go."""
    slot = herd.static[-1]
    older = herd.names[slot]
    newer = herd.start(slot)
    # The older one hears of it at its next heartbeat.
    herd.allowed_overlaps.add((older, newer))
    until(lambda: herd.running[older].poll() is not None, "the older twin ends")
    assert herd.gone(older) == FAILED, herd.said(older)
    assert "group.instance.id" in herd.ledger.read().failed[older]
    herd.await_settled()


def lose_coordinator(herd: Herd, *, orderly: bool) -> None:
    """The group's coordinator stops in order, or is killed; another node takes over."""
    node = int(group_of(herd.broker.bootstrap, herd.group).coordinator.id)
    herd.broker.stop_node(node, orderly=orderly)
    try:
        herd.await_settled()
    finally:
        herd.broker.start_node(node)
    herd.await_settled()


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
    herd: Herd, faults: dict[str, Fault], *, note: Callable[[str], None] = print
) -> dict[str, object]:
    """Do all of these to a herd, one after the other.

    Parameters
    ----------
    herd : Herd
        Nobody has started yet.
    faults : dict of str to callable
        From :data:`ONE_BROKER` or :data:`THREE_BROKERS`.
    note : callable
        Told how long each took.

    Returns
    -------
    dict
        Figures, and ``violations``: everything that must not be.
    """
    start_all(herd)
    settle_s, stop_s = {}, {}
    for name, fault in faults.items():
        begin = time.time()
        fault(herd)
        end = time.time()
        settle_s[name] = round(end - begin, 1)
        stop_s[name] = round(herd.ledger.longest_stop(begin, end), 1)
        note(f"{name}: settled after {end - begin:.1f} s")
    produced, wrong = herd.finish()
    ledger = herd.ledger
    return {
        "records": sum(produced),
        "read_again": sum(ledger.duplicates().values()),
        "in_flight": sum(ledger.in_flight.values()),
        "settle_s": settle_s,
        "longest_stop_s": stop_s,
        "violations": wrong,
    }
