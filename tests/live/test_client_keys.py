"""Keys of other clients, on a real broker: records arrive, commits are kept.

A key that the client's library accepts and its connection does not support would pass every other
test.
"""

from __future__ import annotations

import pytest
from tests.live.crew import QUICK, Topic, fresh
from tests.live.waiting import until
from tests.members.test_client_keys import FAMILIAR

from holdfast import Consumer
from holdfast.cluster import client_configs

pytestmark = pytest.mark.broker
SAME = {"max.in.flight", "socket.receive.buffer.bytes"}  # beside the key that they are
ALL = {
    key: value
    for key, value in FAMILIAR.items()
    if key not in {*QUICK, *SAME, "debug"} and client_configs.ALIASES.get(key, key) not in QUICK
}
OTHER_SPELLINGS = {key: ALL[key] for key in ALL if key in client_configs.ALIASES}
FIRST_SPELLINGS = {key: ALL[key] for key in ALL if key not in client_configs.ALIASES}
GROUPS = {
    "first spellings": FIRST_SPELLINGS,
    "other spellings": OTHER_SPELLINGS,
}


@pytest.mark.parametrize("keys", GROUPS.values(), ids=GROUPS)
def test_records_come_under_familiar_keys(broker, keys):
    assert len(keys) >= 5
    topic, group = Topic(broker.bootstrap, 1, 3), fresh("group")
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, **QUICK, **keys}
    if "group.instance.id" in config:
        config["group.instance.id"] = fresh("instance")
    with Consumer(config) as consumer:
        consumer.subscribe([topic.name])
        got: list[object] = []
        until(lambda: got.extend(consumer.poll(0.2)) or len(got) == 3, "records")
        consumer.commit()
        assert consumer.committed([(topic.name, 0)]) == {(topic.name, 0): 3}
