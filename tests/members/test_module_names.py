"""A drop-in's module has every public name of its client."""

import aiokafka
import confluent_kafka
import kafka
import pytest
from tests.members.running import python

import holdfast.aiokafka
import holdfast.confluent
import holdfast.kafka

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
