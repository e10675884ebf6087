"""Sizes of records, beside the bytes themselves and beside what a broker was seen to take."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from holdfast.core.machine.coordinator.group import group_record
from holdfast.core.wire.layouts.record_size import (
    MESSAGE_MAX_BYTES,
    batch_bytes,
    estimate_group_bytes,
)

UUID = "c0ffee00-0000-4000-8000-00000000000{}"


def written(key: bytes, value: bytes) -> int:
    """Bytes of the batch that another client writes for one record."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    builder.append(0, 0, key, value, [])
    return len(io.BytesIO(builder.build()).getvalue())


@given(st.integers(0, 300), st.one_of(st.integers(0, 300), st.integers(8_000, 9_000)))
def test_a_batch_is_as_large_as_another_client_writes_it(n_key, n_value):
    assert batch_bytes(n_key, n_value) == written(b"k" * n_key, b"v" * n_value)


@pytest.mark.parametrize("n", [63, 64, 8_191, 8_192, 1_048_575, 1_048_576, 2_000_000])
def test_lengths_at_the_edges_of_varints(n):
    assert batch_bytes(n, 0) == written(b"k" * n, b"")
    assert batch_bytes(10, n) == written(b"k" * 10, b"v" * n)


def test_columns_of_lengths_give_what_each_length_gives():
    keys = np.array([4, 63, 64, 8_191, 8_192], np.int64)
    values = np.array([0, 1_048_575, 1_048_576, 200_000_000, 63], np.int64)
    pairs = zip(keys.tolist(), values.tolist(), strict=True)
    assert batch_bytes(keys, values).tolist() == [batch_bytes(k, v) for k, v in pairs]


def test_the_last_size_that_kafka_4_3_1_writes_by_default():
    assert batch_bytes(10, 1_048_506) == MESSAGE_MAX_BYTES  # taken; one byte more is refused
    assert batch_bytes(10, 1_048_507) == MESSAGE_MAX_BYTES + 1


def stored(*, static: bool, client_id: str, host: str) -> dict[str, Any]:
    """Three members, as a coordinator writes them."""
    members = tuple(
        {
            "memberId": f"{client_id}-{UUID.format(i)}",
            "groupInstanceId": client_id if static else None,
            "clientId": client_id,
            "clientHost": host,
            "rebalanceTimeout": 60_000,
            "sessionTimeout": 45_000,
            "subscription": b"s" * 100 * i,
            "assignment": b"a" * 50,
        }
        for i in range(3)
    )
    return {
        "protocolType": "consumer",
        "generation": 7,
        "protocol": "range",
        "leader": members[0]["memberId"],
        "currentStateTimestamp": 0,
        "members": members,
    }


def seen(group: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    """What a leader sees of the members."""
    return [
        (m["memberId"], m["groupInstanceId"], len(m["subscription"] + m["assignment"]))
        for m in group["members"]
    ]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("client_id", ["app", "größe-0"])
def test_a_leader_s_estimate_is_the_record_of_its_group(static, client_id):
    group = stored(static=static, client_id=client_id, host="/255.255.255.255")
    record = group_record("orders", group)
    exact = batch_bytes(len(record.key), len(record.value))
    assert estimate_group_bytes(seen(group), group_id="orders", protocol_name="range") == exact


def test_shorter_hosts_make_a_record_smaller_than_its_estimate():
    group = stored(static=False, client_id="app", host="/10.0.0.1")
    record = group_record("orders", group)
    estimate = estimate_group_bytes(seen(group), group_id="orders", protocol_name="range")
    assert estimate - 3 * 7 == batch_bytes(len(record.key), len(record.value))
