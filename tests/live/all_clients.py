"""One sentence for all clients: how a test runs all of them in parallel.

**Rules.** A sentence is a test that takes a :class:`Stage`. It runs once for each client, all at
once, each in groups and topics of its own. Its assertions hold for every client. What a client's
programs expect is an *answer* (:meth:`Stage.says`): holdfast's must be that of the original, which
``originals.json`` keeps. Intended differences, and the answers of ``holdfast.Consumer``, which has
no original, are written next to the sentence.

**Strategy.** The originals run in the slow runs, where their answers must be those of the
file. ``python -m tests.live.originals --write`` writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from kafka.admin import KafkaAdminClient, MemberToRemove
from tests.live.clients import CLIENTS, Client, Place, word
from tests.live.crew import Topic, fresh
from tests.live.event_recorder import EventRecorder
from tests.live.waiting import until

ALL = ("consumer", "confluent", "aiokafka", "kafka")
DROP_INS = ("confluent", "aiokafka", "kafka")
WITH_KEYWORDS = ("aiokafka", "kafka")
"""The clients whose configuration is keywords, and whose calls have the same names."""
OF_AIOKAFKA: dict[str, Any] = {"client_names": ("aiokafka",), "originals": ("aiokafka",)}
OF_KAFKA_PYTHON: dict[str, Any] = {"client_names": ("kafka",), "originals": ("kafka",)}
MANUAL = {"enable_auto_commit": False}
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
FILE = Path(__file__).with_name("originals.json")
Answers = dict[str, Any]

recorded: dict[str, dict[str, Answers]] = {}
"""By sentence and client: what the originals have answered in this process."""
writes = False
"""Whether the file is written anew from that, and not compared."""


class Stage:
    """Where one client, or its original, plays one sentence.

    ``recorded`` has what the original has answered, and ``answers`` what the client answers.
    """

    def __init__(
        self,
        bootstrap: str,
        client: str,
        *,
        is_original: bool = False,
        recorded: Answers | None = None,
    ):
        self.recorded = recorded or {}
        self._names: list[str] = []  # of topics
        self.bootstrap, self.client, self.is_original = bootstrap, client, is_original
        self.group = fresh(f"{client}{'-original' if is_original else ''}")
        self.answers: Answers = {}
        self._open = ExitStack()

    def topic(self, n_partitions: int, n_each: int = 0, name: str = "") -> Topic:
        """A topic with records."""
        made = Topic(self.bootstrap, n_partitions, n_each, name=name)
        self._names.append(made.name)
        return made

    def alone(self, topic: Topic | None = None, **keys: Any) -> Any:
        """A client that has not subscribed; it is closed at the end, unless it is by then."""
        given = {k if callable(v) else k.replace("_", "."): v for k, v in keys.items()}
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group, **given}
        kind = CLIENTS[self.client]
        name = "" if topic is None else topic.name
        made = kind(name, config, is_original=self.is_original)
        close, ends = made.close, self._open.enter_context(ExitStack())
        ends.callback(close)

        def close_once(**said: Any) -> None:
            ends.pop_all()
            close(**said)

        made.close = close_once
        return made

    def member(self, topic: Topic, recorder: EventRecorder | None = None, **keys: Any) -> Any:
        """A client that has subscribed to the topic."""
        made = self.alone(topic, **keys)
        made.subscribe([topic.name], recorder)
        return made

    def owner(self, topic: Topic, recorder: EventRecorder | None = None, **keys: Any) -> Any:
        """One that owns all of it."""
        made = self.member(topic, recorder, **keys)
        self.share(topic, made)
        return made

    def until(self, condition: Callable[[], object], what: str, *polled: Client) -> None:
        """Poll clients in turns until a condition holds; what they hand out is noted."""

        def holds() -> bool:
            for client in polled:
                client.poll(0.05)
            return bool(condition())

        until(holds, lambda: "; ".join([f"{self.group}: {what}", *(c.seen() for c in polled)]))

    def read(self, client: Client, n: int) -> list[Place]:
        """The next ``n`` records and what comes with them, in order of partitions and offsets."""
        found: list[Place] = []
        until(
            lambda: found.extend(client.poll()) or len(found) >= n,
            lambda: f"{self.group}: {n} records, not {found}",
        )
        return sorted(found)

    def share(self, topic: Topic, *clients: Client) -> None:
        """Poll until they own every partition of a topic, each once, and the same number.

        Their callbacks have been told by then.
        """
        n = topic.n_partitions // len(clients)

        def is_shared() -> bool:
            owned = [client.owns() for client in clients]
            has_all = len(set().union(*owned)) == topic.n_partitions
            return has_all and {*map(len, owned)} == {n} and all(c.is_notified() for c in clients)

        self.until(is_shared, f"{n} partitions each", *clients)

    def says(self, name: str, answer: Any) -> None:
        """Note what the client answers; topics are numbered."""
        text = json.dumps(answer)
        for number, topic in enumerate(self._names):
            text = text.replace(topic, f"topic {number}")
        self.answers[name] = json.loads(text)

    def begins_with(self, name: str, text: str) -> None:
        """Note a text; ours begins with the original's, and says more."""
        self.says(name, text)
        if not self.is_original:
            ours, theirs = self.answers[name], self.recorded[name]
            assert ours.startswith(f"{theirs}: "), (ours, theirs)
            self.answers[name] = theirs

    def refused(self, call: Callable[[], Any]) -> str:
        """The word of the error that a call raises, which is in ``error`` then."""
        with pytest.raises(Exception) as raised:
            call()
        self.error = raised.value
        return word(self.error)

    def error_told_by(self, client: Client) -> str:
        """The word of the error that its polls raise in the end."""
        return self.refused(lambda: self.until(lambda: False, "an error", client))

    def remove(self, member_id: str) -> None:
        """Take a member out of the group behind its back, as an administrator would."""
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.remove_group_members(self.group, [MemberToRemove(member_id=member_id)])

    def remove_all(self) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            (told,) = admin.describe_groups([self.group]).values()
            for member in told["members"]:
                self.remove(member["member_id"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


Sentence = Callable[[Stage], None]


def play_one(sentence: Sentence, stage: Stage) -> Answers:
    """Play with one client; its answers."""
    with stage:
        sentence(stage)
    return stage.answers


def play_all(bootstrap: str, sentence: Sentence) -> None:
    """Play with every client of ours, side by side."""
    side_by_side({name: partial(play_one, sentence, Stage(bootstrap, name)) for name in ALL})


def side_by_side(plays: Mapping[str, Callable[[], Answers]]) -> dict[str, Answers]:
    """Play at once; the answers of each, or what failed with whose name."""
    with ThreadPoolExecutor(len(plays)) as pool:
        running = {name: pool.submit(play) for name, play in plays.items()}
    failed = []
    for name, done in running.items():
        if (error := done.exception()) is not None:
            error.add_note(f"client: {name}")
            failed.append(error)
    if failed:
        raise failed[0] if len(failed) == 1 else BaseExceptionGroup("several clients", failed)
    return {name: done.result() for name, done in running.items()}


def sentence(
    *,
    client_names: Sequence[str] = ALL,
    originals: Sequence[str] = (),
    ours: Mapping[str, Answers] | None = None,
) -> Callable[[Sentence], Callable[..., None]]:
    """Make a test of a sentence for these clients.

    ``originals`` are clients whose original is asked, too; ``ours`` has answers of ours, by client,
    that are not its original's.
    """

    def decorate(play: Sentence) -> Callable[..., None]:
        name = play.__name__.removeprefix("test_")

        def test(broker: Any, played_by: str) -> None:
            is_original = played_by == "originals"
            theirs = {} if is_original and writes else answers_of_originals().get(name, {})
            stages = {
                client: Stage(
                    broker.bootstrap,
                    client,
                    is_original=is_original,
                    recorded=theirs.get(client),
                )
                for client in (originals if is_original else client_names)
            }
            found = side_by_side({c: partial(play_one, play, s) for c, s in stages.items()})
            if is_original:
                recorded[name] = found
            if is_original and writes:
                return
            for client, answers in found.items():
                own = {} if is_original or ours is None else ours.get(client, {})
                wanted = {**stages[client].recorded, **own}
                assert answers == wanted, f"{client}: {differences(answers, wanted)}"

        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        players = ["ours"]
        if originals:
            players.append(pytest.param("originals", marks=pytest.mark.slow))
        return pytest.mark.parametrize("played_by", players)(test)

    return decorate


def differences(answers: Answers, wanted: Answers) -> list[str]:
    """Where two sets of answers differ."""
    missing = object()
    return [
        f"{name!r}: {answers.get(name, 'no answer')}, not {wanted.get(name, 'no answer')}"
        for name in {**wanted, **answers}
        if answers.get(name, missing) != wanted.get(name, missing)
    ]


def answers_of_originals() -> dict[str, dict[str, Answers]]:
    """What the file keeps."""
    return json.loads(FILE.read_text(encoding="utf-8"))["answers"]
