"""TLS and SASL by Kafka's own keys, against a broker that requires them; and texts of refusals."""

from __future__ import annotations

import gc
import logging

import pytest
from tests.live.security import LOGIN, PASSWORD, USER
from tests.suites import further

from holdfast import Consumer
from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, kafka_options

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _collect():
    """A socket that was left open fails the test that left it."""
    yield
    gc.collect()


@pytest.mark.parametrize("way", ["SCRAM-512", "PLAIN"])
def test_a_refusal_tells_no_secret(broker, security, way, caplog):
    wrong = {"sasl.password": "not-the-password", "request.timeout.ms": 3_000}
    consumer = Consumer(security.login(broker, way, **wrong))
    with caplog.at_level(logging.DEBUG), pytest.raises(HoldfastError, match="password") as caught:
        consumer.subscribe(["t"])
    consumer.close()
    text = f"{caught.value}{caught.value!r}{caplog.text}{consumer.__dict__}"
    assert "sasl.password" in str(caught.value)
    assert "not-the-password" not in text


JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="{USER}" password="{PASSWORD}";'
)
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def test_a_protocol_that_there_is_not_is_refused_before_anything_connects(broker):
    """One half of a command used to connect in plain text, with the other half's error later."""
    cluster = LiveCluster(bootstrap=broker.bootstrap, config={"security.protocol": "SASL_SSSL"})
    for ask in (cluster.check, cluster.snapshot, lambda: cluster.spark_options):
        with pytest.raises(ConfigError, match="did you mean 'SASL_SSL'"):
            ask()


@pytest.mark.spark
@pytest.mark.parametrize("spelling", further(["Java", "librdkafka", "ours", "both"]))
def test_one_file_of_any_client_serves_python_and_spark(spark, broker, security, spelling):
    """Each half used to understand one spelling, and told the user of an address."""
    java = {"ssl.truststore.type": "PEM", "ssl.truststore.location": security.ca}
    own = {"ssl.ca.location": security.ca}
    config = {
        "Java": {**java, "sasl.jaas.config": JAAS},
        "librdkafka": {**own, **LOGIN, "sasl.mechanisms": "SCRAM-SHA-512"},
        "ours": {**own, **LOGIN},
        "both": {**java, **own, "sasl.jaas.config": JAAS},
    }[spelling]
    cluster = LiveCluster(bootstrap=broker.bootstrap_of("SCRAM"), config={**SCRAM, **config})
    if spelling == "librdkafka":
        del cluster.config["sasl.mechanism"]
    cluster.check()
    found = spark.read.format("kafka").options(**kafka_options(cluster, [0])).load().count()
    assert found >= 0
    assert len(cluster.partition_ends(OFFSETS_TOPIC)) > 0
