"""The modules of the three clients: their names, and what ``install()`` replaces and restores."""

import sys
import tomllib
import types
import warnings
from contextlib import closing
from pathlib import Path

import aiokafka
import aiokafka.consumer.consumer
import confluent_kafka
import kafka
import kafka.consumer.group
import pytest
from confluent_kafka import KafkaException, aio
from tests.members.configured import QUICK
from tests.members.running import on_a_loop, python

import holdfast.aiokafka
import holdfast.confluent
import holdfast.kafka

CLIENTS = {
    "confluent": (
        holdfast.confluent,
        {
            confluent_kafka.Consumer: holdfast.confluent.Consumer,
            confluent_kafka.DeserializingConsumer: holdfast.confluent.DeserializingConsumer,
            aio.AIOConsumer: holdfast.confluent.AIOConsumer,
        },
        ["confluent_kafka", "confluent_kafka.aio"],
    ),
    "aiokafka": (
        holdfast.aiokafka,
        {aiokafka.AIOKafkaConsumer: holdfast.aiokafka.AIOKafkaConsumer},
        ["aiokafka", "aiokafka.consumer", "aiokafka.consumer.consumer"],
    ),
    "kafka": (
        holdfast.kafka,
        {kafka.KafkaConsumer: holdfast.kafka.KafkaConsumer},
        ["kafka", "kafka.consumer", "kafka.consumer.group"],
    ),
}
ROOT = Path(__file__).parents[2]
EACH = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture
def framework(monkeypatch):
    """A module that is loaded, and imported a client's classes before."""
    module = types.ModuleType("a_framework")
    monkeypatch.setitem(sys.modules, "a_framework", module)
    monkeypatch.setitem(sys.modules, "a_blocked_one", None)
    return module


@pytest.fixture(autouse=True)
def _subclasses_of_other_tests():
    """They live until the garbage collector comes, and are warned of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"tests\..* was derived", RuntimeWarning)
        yield


def globals_of(names, kinds):
    """(module, name, class) of each global of these modules that is one of these classes."""
    return {
        (name, key, value)
        for name in names
        for key, value in vars(sys.modules[name]).items()
        if isinstance(value, type) and value in kinds
    }


@EACH
def test_everybody_gets_ours_until_it_is_undone(client, framework):
    module, ours, names = CLIENTS[client]
    names = [*names, "a_framework"]
    for number, original in enumerate(ours):
        setattr(framework, f"Kind{number}", original)
    framework.other = confluent_kafka.Producer
    before = globals_of(names, set(ours))
    assert {name for name, _, _ in before} == set(names)
    undo = module.install()
    try:
        assert globals_of(names, set(ours)) == set()
        assert globals_of(names, set(ours.values())) == {(n, k, ours[v]) for n, k, v in before}
        assert framework.other is confluent_kafka.Producer
        module.install()()  # one more, and undone, changes nothing
        assert globals_of(names, set(ours)) == set()
    finally:
        undo()
    assert globals_of(names, set(ours)) == before
    undo()
    assert globals_of(names, set(ours)) == before


@EACH
def test_a_class_that_was_derived_before_is_told_of(client):
    module, ours, _ = CLIENTS[client]
    original, mine = next(iter(ours.items()))
    derived = type("Derived", (original,), {"__module__": "tests.a_framework"})
    beyond = type("Beyond", (mine,), {"__module__": "tests.a_framework"})
    with pytest.warns(RuntimeWarning, match=r"tests\.a_framework\.Derived was") as told:
        module.install()()
    (about,) = [w for w in told if "Derived was" in str(w.message)]
    assert about.filename == __file__
    assert not any("Beyond" in str(w.message) for w in told)
    assert issubclass(beyond, original)
    del derived


def test_keys_go_over_those_of_a_framework_until_they_are_undone():
    def strategy_of(**config):
        with closing(confluent_kafka.Consumer({**QUICK, **config})) as consumer:
            return [assignor.name for assignor in consumer._holdfast.assignors]

    theirs = {"partition.assignment.strategy": "range"}
    undo = holdfast.confluent.install({"holdfast.policy": "deferred"})
    try:
        assert strategy_of(**theirs) == ["holdfast-deferred"]
        again = holdfast.confluent.install({"partition.assignment.strategy": "sticky"})
        assert strategy_of(**theirs) == ["sticky"]
        again()
        assert strategy_of() == ["holdfast-deferred"]
        with pytest.raises(KafkaException, match="the broker assigns"):
            confluent_kafka.Consumer({"group.id": "g", "group.protocol": "consumer"})
    finally:
        undo()
    with closing(holdfast.confluent.Consumer({**QUICK, **theirs})) as consumer:
        assert [assignor.name for assignor in consumer._holdfast.assignors] == ["range"]


@on_a_loop
async def test_keywords_go_over_those_of_a_framework_of_aiokafka():
    def strategy_of(consumer):
        return [assignor.name for assignor in consumer._member_assignors]

    theirs = aiokafka.coordinator.assignors.range.RangePartitionAssignor
    undo = holdfast.aiokafka.install(
        holdfast_policy="deferred", scheduled_rebalance_max_delay_ms=7_000
    )
    try:
        consumer = aiokafka.AIOKafkaConsumer(
            "a", group_id="g", partition_assignment_strategy=[theirs]
        )
        assert strategy_of(consumer) == ["holdfast-deferred"]
        assert consumer._member_settings["scheduled.rebalance.max.delay.ms"] == 7_000
        alone = aiokafka.AIOKafkaConsumer("a")
        assert alone._member_settings is None
    finally:
        undo()
    after = holdfast.aiokafka.AIOKafkaConsumer(
        "a", group_id="g", partition_assignment_strategy=[theirs]
    )
    assert strategy_of(after) == ["range"]
    for made in (consumer, alone, after):
        await made.stop()


@pytest.mark.broker  # without one, kafka-python leaves sockets behind
def test_keywords_go_over_those_of_a_framework_of_kafka_python(broker):
    def strategy_of(consumer):
        return [assignor.name for assignor in consumer._coordinator.assignors]

    common = {"bootstrap_servers": broker.bootstrap}
    undo = holdfast.kafka.install(holdfast_policy="deferred")
    try:
        consumer = kafka.KafkaConsumer(
            group_id="g", partition_assignment_strategy=["range"], **common
        )
        assert strategy_of(consumer) == ["holdfast-deferred"]
        alone = kafka.KafkaConsumer(**common)
        assert type(alone._coordinator) is not type(consumer._coordinator)
    finally:
        undo()
    after = holdfast.kafka.KafkaConsumer(
        group_id="g", partition_assignment_strategy=["range"], **common
    )
    assert strategy_of(after) == ["range"]
    for made in (consumer, alone, after):
        made.close()


OLD = """
import sys
sys.modules["confluent_kafka.aio"] = None  # as before 2.13
import confluent_kafka
import holdfast.confluent
undo = holdfast.confluent.install()
assert confluent_kafka.Consumer is holdfast.confluent.Consumer
assert not hasattr(holdfast.confluent, "AIOConsumer")
undo()
assert confluent_kafka.Consumer is not holdfast.confluent.Consumer
"""


INSTALLED = """
import confluent_kafka
originals = (confluent_kafka.Consumer,)  # no global is the class: it would be replaced
import holdfast.confluent
holdfast.confluent.install()
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.members.config.settings import Settings
settings = Settings.parse({"bootstrap.servers": "127.0.0.1:1", "group.id": "alone"})
adapter = ConsumerAdapter(settings, lambda: None)
assert isinstance(adapter.client, originals)
assert not isinstance(adapter.client, holdfast.confluent.Consumer)
adapter.close()
"""


def test_the_consumer_of_ours_fetches_with_the_clients_own_class_all_the_same():
    done = python(INSTALLED)
    assert done.returncode == 0, done.stderr


def test_a_confluent_kafka_without_the_asyncio_consumer_has_the_others():
    done = python(OLD)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("extra", ["members", "fleet"])
def test_an_extra_has_what_members_and_commands_connect_with(extra):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = project["optional-dependencies"][extra]
    assert any(package.startswith("kafka-python") for package in packages)


PAIRS = [
    (confluent_kafka, holdfast.confluent),
    (kafka, holdfast.kafka),
    (aiokafka, holdfast.aiokafka),
]


@pytest.mark.parametrize(("client", "ours"), PAIRS)
def test_every_public_name_of_the_client_is_there(client, ours):
    names = [name for name in client.__all__ if not name.endswith("Consumer")]
    assert len(names) >= 4
    for name in names:
        handed_on = getattr(ours, name)
        assert handed_on is getattr(client, name)


@pytest.mark.parametrize(("client", "ours"), PAIRS)
def test_a_consumer_is_ours_or_is_not_there(client, ours):
    names = [name for name in client.__all__ if name.endswith("Consumer")]
    assert names
    for name in names:
        assert getattr(ours, name, None) is not getattr(client, name)


def test_a_name_that_nobody_has_is_refused_by_the_name_of_the_module():
    for module in ("confluent", "kafka", "aiokafka"):
        done = python(f"from holdfast.{module} import Prodcuer")
        assert f"cannot import name 'Prodcuer' from 'holdfast.{module}" in done.stderr
