"""Topic ids: the text is Kafka's, and both texts are read."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.core.wire.one.topic_ids import names_by_id, read_topic_id, topic_id_text
from holdfast.fleet.pipeline.ingest.decode import id_text

KNOWN = {
    "00000000-0000-0000-0000-000000000000": "AAAAAAAAAAAAAAAAAAAAAA",
    "00000000-0000-0000-0000-000000000001": "AAAAAAAAAAAAAAAAAAAAAQ",
    "ffffffff-ffff-ffff-ffff-ffffffffffff": "_____________________w",
}
"""What ``org.apache.kafka.common.Uuid.toString`` says of these."""


@pytest.mark.parametrize(("dashed", "text"), KNOWN.items())
def test_the_text_is_that_of_kafkas_tools(dashed, text):
    assert topic_id_text(UUID(dashed)) == text
    assert read_topic_id(text) == read_topic_id(dashed) == UUID(dashed)


@given(st.uuids())
def test_every_id_comes_back_from_either_form(topic_id):
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert read_topic_id(text) == read_topic_id(str(topic_id)) == topic_id


@given(st.lists(st.uuids(), max_size=5))
def test_a_column_of_ids_has_the_same_text(ids):
    data = b"".join(i.bytes for i in ids)
    column = id_text(np.frombuffer(data, np.uint8).reshape(-1, 16))
    assert column.to_pylist() == [topic_id_text(i) for i in ids]


@pytest.mark.parametrize("text", ["", "zzz", "A" * 21 + "!", "A" * 23])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError):
        read_topic_id(text)


def test_a_record_shows_its_topic_id_so_and_is_written_from_either_form():
    dashed, text = list(KNOWN.items())[1]
    key = {"group": "g", "topic": "t", "partition": 0}
    commit = {"offset": 1, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 0}
    (written,) = {
        encode_record(
            Record(
                record_type=1,
                name="",
                key=key,
                value_version=4,
                value={**commit, "topicId": form},
            )
        )
        for form in (UUID(dashed), dashed, text)
    }
    assert decode_record(*written).to_dict()["value"]["topicId"] == text


def test_names_are_found_by_either_form():
    for form in list(KNOWN.items())[1]:
        names = names_by_id([(form, "t")])
        assert [names[other] for other in list(KNOWN.items())[1]] == ["t", "t"]
    assert names_by_id([("odd", "t")]) == {"odd": "t"}
