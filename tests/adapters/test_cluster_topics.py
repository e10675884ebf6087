"""Topics of a cluster as kafka-python describes them."""

from __future__ import annotations

from uuid import UUID

from holdfast.adapters.cluster.cluster import topic_rows


def test_a_topic_id_may_be_a_uuid_or_its_text():
    topic_id = UUID("b06f7a4e-53f8-4cfd-8e89-c515f5aab1c3")
    for given in (topic_id, str(topic_id)):
        described = [{"topic_id": given, "name": "few", "partitions": [{}, {}]}]
        assert topic_rows(described) == [("sG96TlP4TP2OicUV9aqxww", "few", 2)]
