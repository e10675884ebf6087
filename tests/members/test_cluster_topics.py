"""Topics of a cluster in the form of tables."""

from __future__ import annotations

from uuid import UUID

from holdfast.cluster.cluster import topic_rows
from holdfast.cluster.lookup import ClusterTopic


def test_a_topic_has_its_id_as_kafkas_tools_show_it():
    topic_id = UUID("b06f7a4e-53f8-4cfd-8e89-c515f5aab1c3")
    few = ClusterTopic(name="few", topic_id=topic_id, leaders={0: 1, 1: -1})
    assert topic_rows([few]) == [("sG96TlP4TP2OicUV9aqxww", "few", 2)]
