"""What a callback of a rebalance may call: everything, and no call waits for the callback itself.

A call inside a callback takes effect at once, or when the call that ran the callback returns, or it
raises a clear error. The same sentences for each session, see :mod:`tests.live.all_clients`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from aiokafka.errors import ConsumerStoppedError
from tests.live.all_clients import ALL, COOPERATIVE, MANUAL, Stage, play_all
from tests.live.calls import CALLS, ENDS, KINDS, WITHOUT_MEMBER, public
from tests.live.event_recorder import EventRecorder
from tests.live.waiting import until
from tests.suites import further

pytestmark = pytest.mark.broker
SOON_S = 20  # a call that waits for its own callback takes 30 s and more
WORDS = ("assigned", "revoked", "lost")
QUICK = {"max_poll_interval_ms": 600_000}


@pytest.mark.parametrize("client", ALL)
def test_every_public_call_is_in_the_table(client):
    names = public(KINDS[client]) - ENDS - WITHOUT_MEMBER.keys()

    class Nothing:
        consumer = property(lambda self: type("Calls", (), dict.fromkeys(names)))
        topic = ""

        def tp(self, *_: int) -> None:
            """No partition."""

    assert names - CALLS[client](Nothing()).keys() == set()


class Inside:
    """Calls that are made in the first callback of one kind that is about partitions."""

    def __init__(self, client: Any, word: str, calls: dict[str, Callable[[], Any]]):
        self.seconds: dict[str, float] = {}
        self.errors: dict[str, Exception] = {}
        self.recorder = EventRecorder()
        self._word, self._calls, self._has_begun = word, calls, False
        self.is_over = False
        self.recorder.inside[word] = self._run
        if client.name == "aiokafka":  # its callbacks await, on the loop
            client.listener = self._awaiting
            self._kind = client.listener_kind

    def _begins(self, partitions: list[int]) -> bool:
        begins = bool(partitions) and not self._has_begun
        self._has_begun |= begins
        return begins

    def _run(self, partitions: list[int]) -> None:
        if self._begins(partitions):
            for name, call in self._calls.items():
                began = time.monotonic()
                try:
                    call()
                except Exception as error:
                    self.errors[name] = error
                self.seconds[name] = time.monotonic() - began
            self.is_over = True

    def _awaiting(self, recorder: EventRecorder) -> Any:
        def method(word: str) -> Any:
            async def hear(_: Any, partitions: Any) -> None:
                recorder.inside.pop(word, None)
                recorder.note(word, partitions)
                if word == self._word and self._begins(list(partitions)):
                    await self._run_awaiting()

            return hear

        names = {f"on_partitions_{word}": method(word) for word in WORDS}
        return type("Awaiting", (self._kind,), names)()

    async def _run_awaiting(self) -> None:
        for name, call in self._calls.items():
            began = time.monotonic()
            try:
                answer = call()
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:
                self.errors[name] = error
            self.seconds[name] = time.monotonic() - began
        self.is_over = True


def happens(stage: Stage, word: str, topic: Any, inside: Inside, one: Any, other: Any) -> None:
    """Have the callback come, and end."""
    one.subscribe([topic.name], inside.recorder)
    if word != "assigned":
        stage.share(topic, one)
    if word == "lost":
        stage.remove(one.snapshot.identity.member_id)
    if word == "revoked":
        other.subscribe([topic.name])
    polled = [one, other] if word == "revoked" else [one]

    def is_over() -> bool:
        for client in polled:
            with suppress(ConsumerStoppedError):  # aiokafka's ends beside its calls
                client.poll(0.05)
        return inside.is_over

    until(is_over, lambda: f"{stage.group}: {word}: {inside.seconds}")


EVERY = [("assigned", {}), ("revoked", COOPERATIVE), ("lost", {}), ("revoked", {})]


@pytest.mark.parametrize(("word", "keys"), further(EVERY, stays=EVERY[:2]), ids=str)
def test_every_call_in_a_callback(broker, word, keys):
    def play(stage: Stage) -> None:
        topic = stage.topic(2, 5)
        one, other = (stage.alone(topic, **QUICK, **MANUAL, **keys) for _ in range(2))
        inside = Inside(one, word, CALLS[stage.client](one))
        happens(stage, word, topic, inside, one, other)
        assert inside.seconds.keys() == CALLS[stage.client](one).keys()
        slow = {name: s for name, s in inside.seconds.items() if s > SOON_S}
        assert not slow, (slow, inside.errors)
        one.close()
        if word != "revoked":
            other.subscribe([topic.name])
        stage.share(topic, other)

    play_all(broker.bootstrap, play)


def ends_of(stage: Stage, one: Any, topic: Any) -> dict[str, Callable[[], Any]]:
    """What ends a membership; ``leaves and joins`` begins a new one."""
    made = one.consumer
    ended: dict[str, Callable[[], Any]] = {
        "closes": made.stop if stage.client == "aiokafka" else made.close,
        "leaves": made.unsubscribe,
    }
    return ended | {"joins": lambda: made.subscribe([topic.name])}


ENDINGS = [
    ("assigned", ("closes",), {}),
    ("revoked", ("closes",), COOPERATIVE),
    ("assigned", ("leaves",), {}),
    ("assigned", ("leaves", "joins"), {}),
    ("lost", ("closes",), {}),
    ("revoked", ("closes",), {}),
    ("revoked", ("leaves",), {}),
    ("lost", ("leaves",), {}),
    ("revoked", ("leaves", "joins"), {}),
    ("lost", ("leaves", "joins"), {}),
]


@pytest.mark.parametrize(("word", "does", "keys"), further(ENDINGS, stays=ENDINGS[:4]), ids=str)
def test_a_member_ends_in_a_callback(broker, word, does, keys):
    def play(stage: Stage) -> None:
        topic = stage.topic(2, 5)
        one, other = (stage.alone(topic, **QUICK, **keys) for _ in range(2))
        calls = {name: ends_of(stage, one, topic)[name] for name in does}
        inside = Inside(one, word, calls)
        happens(stage, word, topic, inside, one, other)
        assert inside.errors == {}
        assert max(inside.seconds.values()) < SOON_S, inside.seconds
        began = time.monotonic()
        if word != "revoked":
            other.subscribe([topic.name])
        if does[-1] == "joins":
            one.recorder = None  # it has joined without a listener
            stage.share(topic, one, other)
            assert time.monotonic() - began < SOON_S, "a session lasts 30 s: an id is left behind"
            return
        polls = (
            [one] if does == ("leaves",) and stage.client == "confluent" else []
        )  # its calls end it
        stage.until(lambda: other.owns() == {0, 1}, "the other member owns all", *polls, other)
        assert time.monotonic() - began < SOON_S, "its session lasts 30 s: it has not left in order"

    play_all(broker.bootstrap, play)
