"""Wrong calls of kafka-python's and aiokafka's consumers: same class, text and state as theirs.

A call is wrong in the consumer's state: it has not subscribed, it has no group, it is closed, or
the argument is not its own. The originals' answers are in ``originals.json``, see
:mod:`tests.live.all_clients`.
"""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.live.all_clients import WITH_KEYWORDS, sentence

pytestmark = pytest.mark.broker

TIMES = re.compile(r"0x[0-9a-f]+|\d+\.\d+ ?(?:s|ms)\b")


class Caller:
    """One client, and what its wrong calls answer."""

    def __init__(self, stage: Any, **keys: Any):
        self.stage = stage
        self.topic = stage.topic(2, 3)
        self.client = stage.alone(self.topic, enable_auto_commit=False, **keys)

    def other(self) -> Any:
        """A partition that the member does not own."""
        return type(self.client.tp(0))("another-topic", 0)

    def ask(self, state: str, calls: dict[str, Callable[[], Any]]) -> None:
        """Make every call, and note what it answers."""
        for name, call in calls.items():
            self.stage.says(f"{state}: {name}", answer(self.stage, call))


def answer(stage: Any, call: Callable[[], Any]) -> Any:
    """What a call answers: nothing, a value, or the class and the words of an error."""
    try:
        found = call()
    except Exception as error:  # whatever it is, it is the answer
        text = TIMES.sub("?", str(error)).replace(stage.group, "GROUP")
        return [type(error).__name__, text.replace(stage.bootstrap, "BOOTSTRAP")]
    return None if found is None else "a value"


def wrong_everywhere(caller: Caller) -> dict[str, Callable[[], Any]]:
    """Calls that both clients have, and that only a consumer with partitions may make."""
    does, tp, other = caller.client.does, caller.client.tp(0), caller.other()
    offset = caller.client.offset
    return {
        "position": lambda: does("position", other),
        "seek": lambda: does("seek", other, 1),
        "seek to a negative offset": lambda: does("seek", tp, -1),
        "seek to a word": lambda: does("seek", tp, "1"),
        "seek_to_beginning": lambda: does("seek_to_beginning", other),
        "seek_to_end": lambda: does("seek_to_end", other),
        "seek_to_beginning of a word": lambda: does("seek_to_beginning", "orders"),
        "pause": lambda: does("pause", other),
        "resume": lambda: does("resume", other),
        "commit of a word": lambda: does("commit", {"orders": offset(1)}),
        "commit of a word as offset": lambda: does("commit", {tp: "1"}),
        "committed of a word": lambda: does("committed", "orders"),
        "highwater": lambda: does("highwater", other),
    }


def wrong_subscriptions(caller: Caller) -> dict[str, Callable[[], Any]]:
    """Subscriptions that are none, and those that contradict each other."""
    does, tp, name = caller.client.does, caller.client.tp(0), caller.topic.name
    return {
        "subscribe to a word": lambda: does("subscribe", name),
        "subscribe to nothing": lambda: does("subscribe"),
        "subscribe to both": lambda: does("subscribe", [name], pattern="a.*"),
        "subscribe to a number": lambda: does("subscribe", [1]),
        "subscribe to an empty name": lambda: does("subscribe", [""]),
        "subscribe with a listener that is none": lambda: does("subscribe", [name], listener=1),
        "assign beside a subscription": lambda: (
            does("subscribe", [name]),
            does("assign", [tp]),
        ),
        "unsubscribe": lambda: does("unsubscribe"),
        "a subscription beside an assignment": lambda: (
            does("assign", [tp]),
            does("subscribe", [name]),
        ),
        "unsubscribe again": lambda: does("unsubscribe"),
    }


@sentence(client_names=WITH_KEYWORDS, originals=WITH_KEYWORDS)
def test_a_wrong_call_of_a_consumer_that_has_not_subscribed(stage):
    caller = Caller(stage)
    caller.ask("unsubscribed", wrong_everywhere(caller))
    caller.ask("unsubscribed", {"commit": lambda: caller.client.does("commit")})
    caller.ask("unsubscribed", wrong_subscriptions(caller))


@sentence(client_names=WITH_KEYWORDS, originals=WITH_KEYWORDS)
def test_a_wrong_call_of_a_member(stage):
    caller = Caller(stage)
    client = caller.client
    client.subscribe([caller.topic.name])
    stage.until(lambda: len(client.records) == 6, "it has its records", client)
    caller.ask("member", wrong_everywhere(caller))
    if is_async(stage):
        unowned = {caller.other(): client.offset(1)}
        calls = {
            # kafka-python's original asks the broker until its time is over
            "commit of what is not owned": lambda: client.does("commit", unowned),
            "start": lambda: client.does("start"),
        }
        caller.ask("member", calls)
    caller.ask("member", {"assign": lambda: client.assign([0])})


@sentence(client_names=WITH_KEYWORDS, originals=WITH_KEYWORDS)
def test_a_call_of_a_consumer_that_is_closed(stage):
    caller = Caller(stage)
    client = caller.client
    client.subscribe([caller.topic.name])
    stage.until(lambda: len(client.records) == 6, "it has its records", client)
    client.does("stop" if is_async(stage) else "close")
    reads = {"getone": "getone", "getmany": "getmany"} if is_async(stage) else {"poll": "poll"}
    calls: dict[str, Callable[[], Any]] = {
        **{name: lambda call=call: client.does(call) for name, call in reads.items()},
        "commit": lambda: client.does("commit"),
        "close": lambda: client.does("stop" if is_async(stage) else "close"),
    }
    if is_async(stage):
        calls["start"] = lambda: client.does("start")
    caller.ask("closed", calls)


@sentence(client_names=WITH_KEYWORDS, originals=WITH_KEYWORDS)
def test_a_wrong_call_of_a_consumer_without_a_group(stage):
    caller = Caller(stage, group_id=None)
    client, name = caller.client, caller.topic.name
    client.assign([0])
    caller.ask(
        "without a group",
        {
            "commit": lambda: client.does("commit"),
            "commit of an offset": lambda: client.commit_at({0: 1}),
            "committed": lambda: client.committed(0),
            "subscribe": lambda: client.does("subscribe", [name]),
        },
    )


SETTINGS: dict[str, dict[str, Any]] = {
    "an unknown one": {"no_such_setting": 1},
    "an unknown reset": {"auto_offset_reset": "never"},
    "an unknown security": {"security_protocol": "NONE"},
    "an unknown mechanism": {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "NONE"},
    "a login without a user": {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
    "an unknown isolation": {"isolation_level": "none"},
    "a group that is a number": {"group_id": 1},
    "an api version that is a word": {"api_version": "newest"},
}


ISOLATION = "isolation.level: expected one of read_uncommitted, read_committed, found 'none'"
GROUP = "group.id: expected a string, found int"
OF_KAFKA = "KafkaConfigurationError"
REFUSED_EARLIER: dict[str, dict[str, Any]] = {
    "aiokafka": {
        "an unknown isolation": ["ValueError", ISOLATION],
        "a group that is a number": ["ValueError", GROUP],
    },
    "kafka": {
        "an unknown isolation": [OF_KAFKA, f"{OF_KAFKA}: {ISOLATION}"],
        "a group that is a number": [OF_KAFKA, f"{OF_KAFKA}: {GROUP}"],
    },
}
"""A member of ours reads its configuration first, and refuses what it could not join with."""


# A constructor that refuses leaves what it has opened to the garbage collector, ours like theirs.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@sentence(client_names=WITH_KEYWORDS, originals=WITH_KEYWORDS, ours=REFUSED_EARLIER)
def test_a_setting_that_is_wrong(stage):
    """What the original refuses when it is made, ours refuses alike; what it takes, ours takes."""
    kind = stage.alone().kind

    def make(given: dict[str, Any]) -> Any:
        words = {"bootstrap_servers": stage.bootstrap, "group_id": stage.group, **given}
        if is_async(stage):
            return asyncio.run(made_on_a_loop(kind, words))
        kind(**words, bootstrap_timeout_ms=2000).close()
        return None

    for name, given in SETTINGS.items():
        stage.says(name, answer(stage, lambda given=given: make(given)))
    gc.collect()


async def made_on_a_loop(kind: Any, words: dict[str, Any]) -> None:
    """Make the consumer, start it, and end it whatever comes of it."""
    consumer = kind(**words)
    try:
        await asyncio.wait_for(consumer.start(), 30)
    finally:
        await consumer.stop()


def is_async(stage: Any) -> bool:
    return stage.client == "aiokafka"
