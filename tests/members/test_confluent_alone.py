"""``holdfast.confluent.Consumer`` compared with ``confluent_kafka.Consumer``, without a broker.

Both classes must give the same answer to the same program, so each test runs with both.
"""

import inspect
import logging
import threading
import time
from contextlib import closing
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from tests.live.waiting import until
from tests.members.configured import QUICK

from holdfast.confluent import Consumer
from holdfast.members.clients.confluent import config as routing
from holdfast.members.clients.confluent.errors import error_message
from holdfast.members.config.settings import KEYS

ORIGINAL = confluent_kafka.Consumer
KINDS = pytest.mark.parametrize("kind", [ORIGINAL, Consumer], ids=["original", "ours"])


def answer(call):
    """What a call returns, or the class and the code or text of what it raises."""
    try:
        found = call()
    except KafkaException as error:
        return type(error), error.args[0].code()
    except Exception as error:
        return type(error), str(error)
    if isinstance(found, list):
        return [(p.topic, p.partition, p.offset) for p in found]
    return found


def of_both(call, **config):
    """The answers of the original and of ours."""
    answers = []
    for kind in (ORIGINAL, Consumer):
        with closing(kind({**QUICK, **config})) as consumer:
            answers.append(answer(lambda consumer=consumer: call(consumer)))
    return answers


@KINDS
def test_a_message_without_an_offset_may_be_stored(kind):
    """confluent-kafka's own ``test_store_offsets_params``."""
    with kind({**QUICK, "enable.auto.offset.store": False}) as consumer:
        consumer.assign([PART])
        assert consumer.store_offsets(Message(topic="t", partition=0)) is None
        with pytest.raises(TypeError):
            consumer.store_offsets(message=3)
        with pytest.raises(ValueError, match="mutually exclusive"):
            consumer.store_offsets(Message(topic="t", partition=0), [PART])


PART = TopicPartition("t", 0)
FAILED = error_message(KafkaError(KafkaError._PARTITION_EOF), "t")


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.subscribe([]),
        lambda c: c.subscribe([""]),
        lambda c: c.subscribe(["a", "a"]),
        lambda c: c.subscribe(["^[bad"]),
        lambda c: c.subscribe("a"),
        lambda c: c.subscribe(("a",)),
        lambda c: c.subscribe(None),
        lambda c: c.subscribe(["a"], on_assign=None),
        lambda c: c.subscribe(["a"], on_revoke=1),
        lambda c: c.subscribe(["a"], on_lost="x"),
        lambda c: c.subscribe(["a"], print, 3),
        lambda c: c.subscribe(["a"], print, print, print),
        lambda c: c.subscribe(["a", "^b.*", 1]),
        lambda c: c.poll(None),
        lambda c: c.poll("x"),
        lambda c: c.poll(timeout=0.001),
        lambda c: c.consume(-1),
        lambda c: c.consume(1_000_001, 0),
        lambda c: c.consume(num_messages="a"),
        lambda c: c.consume(0, 0),
        lambda c: c.consume(num_messages=5, timeout=0.05),
        lambda c: c.consume(1, None),
        lambda c: c.commit(),
        lambda c: c.commit(asynchronous=False),
        lambda c: c.commit(None, None, False),
        lambda c: c.commit(message=1),
        lambda c: c.commit(FAILED),
        lambda c: c.commit(FAILED, [PART]),
        lambda c: c.commit(offsets=3),
        lambda c: c.commit(nonsense=1),
        lambda c: c.store_offsets(),
        lambda c: c.store_offsets(FAILED),
        lambda c: c.store_offsets(offsets=[PART]),
        lambda c: c.store_offsets(FAILED, [PART]),
        lambda c: c.assign(3),
        lambda c: c.incremental_assign([1]),
        lambda c: (c.assign([PART]), c.assignment())[1],
        lambda c: (c.assign([PART]), c.incremental_assign([PART])),
        lambda c: c.incremental_unassign([PART]),
        lambda c: (c.assign([PART]), c.unassign(), c.assignment())[2],
        lambda c: c.seek(PART),
        lambda c: c.position([PART]),
        lambda c: c.get_watermark_offsets(PART, cached=True),
        lambda c: c.committed([PART], timeout=0.01),
        lambda c: c.offsets_for_times([PART], timeout=0.01),
        lambda c: c.list_topics(timeout=0.01),
        lambda c: c.memberid(),
        lambda c: c.consumer_group_metadata(),
        lambda c: c.set_sasl_credentials("user", "secret"),
        lambda c: c.pause([PART]),
        lambda c: c.close(1),
        lambda c: c.__exit__(None),
        lambda c: c.__enter__() is c,
    ],
    ids=lambda call: inspect.getsource(call).strip().rstrip(",").removeprefix("lambda c: "),
)
def test_a_call_has_the_answer_of_the_original(call):
    original, ours = of_both(call)
    if isinstance(original, tuple) and original[0] is TypeError:
        assert ours[0] is TypeError
    else:
        assert ours == original


@pytest.mark.parametrize(
    "config",
    [
        {"nonsense": 1},
        {5: 5},
        {"session.timeout.ms": "soon"},
        {"enable.auto.commit": "perhaps"},
        {"enable.auto.commit": None},
        {"enable.auto.offset.store": "perhaps"},
        {"partition.assignment.strategy": "nonsense"},
        {"partition.assignment.strategy": "range,nonsense"},
        {"partition.assignment.strategy": ""},
        {"group.protocol": "nonsense"},
        {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
        {"on_commit": 1},
        {"error_cb": 1},
        {"stats_cb": 1},
        {"auto.offset.reset": "error"},
        {"bootstrap.servers": "localhost:1", "heartbeat.interval.ms": 5_000},
        {"metadata.broker.list": "PLAINTEXT://localhost:1,other", "client.id": "x"},
        {"topic.metadata.refresh.interval.ms": -1, "bootstrap.servers": "localhost:1"},
        {"logger": logging.getLogger("x")},
        {"group.id": UUID(int=1)},
        {"group.id": 5, "client.id": 6},
        {"max.poll.interval.ms": 300_000.0, "bootstrap.servers": "localhost:1"},
    ],
    ids=str,
)
def test_a_configuration_has_the_answer_of_the_original(config):
    quick = {**QUICK, **config}
    if quick.get("group.protocol") == "consumer":
        del quick["session.timeout.ms"]

    def made(kind):
        kind(quick).close()

    assert answer(lambda: made(Consumer)) == answer(lambda: made(ORIGINAL))


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1,), {}), (({}, {}), {}), (({},), {}), ((), QUICK)], ids=str
)
def test_the_arguments_of_a_constructor_are_those_of_the_original(args, kwargs):
    def made(kind):
        kind(*args, **kwargs).close()

    assert answer(lambda: made(Consumer)) == answer(lambda: made(ORIGINAL))


@KINDS
def test_a_constructor_without_arguments_asks_for_a_configuration(kind):
    with pytest.raises(TypeError, match="expected configuration dict"):
        kind()


@pytest.mark.parametrize("group", ["", " ", None])
def test_an_empty_group_is_no_group(group):
    # The original's own code aborts the process.
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        Consumer({**QUICK, "group.id": group})


@KINDS
def test_an_object_is_initialised_once(kind):
    with closing(kind(QUICK)) as consumer, pytest.raises(RuntimeError, match="already initialized"):
        consumer.__init__(QUICK)


@KINDS
def test_without_init_every_call_says_that_it_is_closed(kind):
    consumer = kind.__new__(kind)
    for call in (consumer.poll, consumer.assignment, consumer.memberid, consumer.commit):
        with pytest.raises(RuntimeError, match=r"^Consumer closed$"):
            call()
    assert consumer.close() is None


@KINDS
def test_after_close_every_call_says_so_and_a_second_close_does_nothing(kind):
    consumer = kind(QUICK)
    consumer.subscribe(["a"])
    consumer.unsubscribe()
    consumer.close()
    calls = [
        lambda: consumer.subscribe(["a"]),
        consumer.unsubscribe,
        consumer.poll,
        consumer.consume,
        consumer.unassign,
        consumer.assignment,
        consumer.commit,
        consumer.memberid,
        consumer.consumer_group_metadata,
        *(
            lambda name=name: getattr(consumer, name)([PART])
            for name in (
                *("assign", "incremental_assign", "incremental_unassign", "committed"),
                *("position", "pause", "resume", "offsets_for_times"),
            )
        ),
        lambda: consumer.seek(PART),
        lambda: consumer.store_offsets(offsets=[PART]),
        lambda: consumer.get_watermark_offsets(PART),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"^Consumer closed$"):
            call()
    assert consumer.close() is None
    assert consumer.__exit__(None, None, None) is None


@KINDS
def test_a_subclass_may_call_its_own_things_what_it_likes(kind):
    class Mine(kind):
        def __init__(self, config):
            super().__init__(config)
            self.group = self.settings = self.stored = self.mail = "mine"

        def poll(self, text):
            return text, super().poll(timeout=0.0001)

        def committed(self, partitions):
            raise AssertionError("nobody else calls this")

    with Mine(QUICK) as consumer:
        consumer.subscribe(["a"], on_assign=print)
        assert consumer.poll("text") == ("text", None)
        assert consumer.group == "mine"


@KINDS
def test_an_error_of_a_callback_comes_out_of_poll_and_the_consumer_goes_on(kind):
    told, raises = [], True

    def error_cb(error):
        told.append(error)
        if raises:
            raise RuntimeError("told")

    config = {**QUICK, "bootstrap.servers": "127.0.0.1:1", "error_cb": error_cb}
    consumer = kind(config)
    with pytest.raises(RuntimeError, match="told"):
        for _ in range(200):
            consumer.consume(10, 0.1)
    assert isinstance(told[0], KafkaError)
    consumer.assign([])
    with pytest.raises(RuntimeError, match="told"):
        for _ in range(200):
            consumer.poll(0.1)
    raises = False
    consumer.close()


@KINDS
def test_an_error_of_a_callback_comes_out_of_close_and_the_consumer_is_closed(kind):
    def stats_cb(_):
        raise RuntimeError("told")

    def close_raises():
        consumer = kind({**QUICK, "statistics.interval.ms": 1, "stats_cb": stats_cb})
        time.sleep(0.1)  # statistics come meanwhile, and wait for the next call
        error = answer(consumer.close)
        assert error in (None, (RuntimeError, "told"))
        assert answer(lambda: consumer.poll(0)) == (RuntimeError, "Consumer closed")
        return error is not None

    until(close_raises, "a close that calls the callback")


@KINDS
def test_statistics_come_to_their_callback(kind):
    told = []
    with closing(
        kind({**QUICK, "statistics.interval.ms": 50, "stats_cb": told.append})
    ) as consumer:
        while not told:
            consumer.poll(0.1)
    assert '"type":"consumer"' in told[0].replace(" ", "")


@KINDS
def test_a_log_comes_to_the_logger(kind, caplog):
    logger = logging.getLogger("of the application")
    config = {**QUICK, "log_level": 7, "debug": "generic", "bootstrap.servers": "127.0.0.1:1"}
    with caplog.at_level(logging.DEBUG, "of the application"):
        consumer = kind(config, logger=logger)
        while not caplog.records:
            consumer.poll(0.1)
        consumer.close()


@KINDS
def test_a_token_comes_from_oauth_cb(kind):
    asked = []

    def token(said):
        asked.append(said)
        return "token", time.time() + 300

    config = {
        **QUICK,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.config": "said",
        "oauth_cb": token,
    }
    with closing(kind(config)) as consumer:
        consumer.poll(0.01)
    assert asked[0] == "said"


@KINDS
def test_a_second_thread_waits_for_the_call_lock(kind):
    inside, order = threading.Event(), []
    told = {"statistics.interval.ms": 20, "stats_cb": lambda _: inside.set()}
    with closing(kind({**QUICK, **told, "bootstrap.servers": "127.0.0.1:1"})) as consumer:
        consumer.subscribe(["a"])

        def first():
            consumer.poll(0.6)
            order.append("first")

        thread = threading.Thread(target=first)
        thread.start()
        inside.wait()  # a callback: the first thread is in its call
        consumer.consume(1, 0.1)
        order.append("second")
        thread.join()
    assert order == ["first", "second"]


def test_a_close_without_a_broker_ends_at_once_and_leaves_no_thread():
    before = set(threading.enumerate())
    consumer = Consumer({**QUICK, "session.timeout.ms": 45_000, "bootstrap.servers": "127.0.0.1:1"})
    consumer.subscribe(["a"])
    consumer.poll(0)
    consumer.close()  # the original waits 45 s here
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(5)  # the request time-out, for which a broker is waited for, is 30 s
    assert not [thread.name for thread in left if thread.is_alive()]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"group.protocol": "consumer", "holdfast.policy": "deferred"}, "remove one of the two"),
        ({"holdfast.nonsense": 1}, "holdfast.nonsense"),
        ({"holdfast.policy": "nonsense"}, "nonsense"),
        ({"holdfast.policy": "deferred", "partition.assignment.strategy": "range,sticky"}, "range"),
        ({"ssl.crl.location": "x"}, "revoked"),
        ({"holdfast.handle.signals": True}, "the program handles SIGTERM"),
        ({"holdfast.data.plane": "aiokafka"}, "unknown configuration key"),
        ({"enable.ssl.certificate.verification": False}, "always checked"),
    ],
    ids=str,
)
def test_what_the_member_cannot_honour_is_refused_with_the_reason(config, said):
    with pytest.raises(KafkaException, match=said) as raised:
        Consumer({**QUICK, "bootstrap.servers": "127.0.0.1:1", **config})
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG


def test_every_key_has_one_way():
    assert not routing.TAKEN.keys() & {*routing.SHARED, *routing.REFUSED, *routing.RENAMED}
    assert not {*routing.SHARED, *routing.RENAMED.values()} - KEYS.keys()
    servers = "a,b:1,::1,"
    config = {"group.id": "g", "bootstrap.servers": servers, "holdfast.policy": "deferred"}
    routed = routing.route({**config, "fetch.min.bytes": 5, "enable.auto.commit": "false"})
    assert routed.client_config == {
        "group.id": "g",
        "bootstrap.servers": servers,
        "fetch.min.bytes": 5,
        "enable.auto.commit": False,
    }
    assert routed.member["bootstrap.servers"] == "a:9092,b:1,[::1]:9092"
    assert not routed.is_automatic
    assert "fetch.min.bytes" not in routed.member


def test_the_default_strategy_is_that_of_librdkafka():
    assert routing.route({"group.id": "g"}).member["partition.assignment.strategy"] == (
        "range,roundrobin"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "latest"),
        ({"auto.offset.reset": "smallest"}, "earliest"),
        ({"auto.offset.reset": "end"}, "latest"),
        ({"auto.offset.reset": "error"}, "none"),
        ({"default.topic.config": {"auto.offset.reset": "beginning"}}, "earliest"),
    ],
)
def test_lags_begin_where_the_group_begins(given, expected):
    """KAFKA-5337: with ``latest`` a partition without a commit has no lag."""
    routed = routing.route({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **given})
    assert routed.settings()["auto.offset.reset"] == expected
