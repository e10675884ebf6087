"""Queries to a cluster: every failure is an error of the cluster, with the request's name."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.members.fake_member import done, failed

from holdfast.cluster import cluster as module
from holdfast.cluster.cluster import topic_rows
from holdfast.cluster.connections import Connections
from holdfast.cluster.first_unread import Wanted
from holdfast.cluster.groups import GroupQuestions
from holdfast.cluster.lookup import ClusterTopic, Lookup
from holdfast.errors import RemoteProtocolError, SourceError

UNREAD = Wanted("t", 0, 1, 2, 3)
CALLS = {
    "topics": ("Metadata", lambda cluster: cluster.snapshot()),
    "ask": ("ListGroups", lambda cluster: cluster.group_names()),
    "first_batches": ("Fetch", lambda cluster: cluster.first_unread([UNREAD])),
    "offsets_at": ("ListOffsets", lambda cluster: cluster.first_unread([UNREAD])),
}


@pytest.fixture
def cluster(monkeypatch):
    """A cluster whose connections open at once, of a release that is told."""
    monkeypatch.setattr(Connections, "open", lambda self, timeout_ms=None: None)
    monkeypatch.setattr(Connections, "release", "3.6")
    monkeypatch.setattr(module, "why_no_answer", lambda settings: None)
    return module.LiveCluster(bootstrap="127.0.0.1:1")


def failed_by(error):
    """A question that fails so."""
    return lambda *_: failed(error)


@pytest.mark.parametrize("asked", CALLS)
@pytest.mark.parametrize("error", [KeyError("endpoint_type"), TypeError("x"), ValueError("y")])
def test_a_fault_of_the_client_library_is_a_source_error(cluster, monkeypatch, asked, error):
    request, call = CALLS[asked]
    monkeypatch.setattr(Lookup, "first_batches", lambda *_: done({}))
    monkeypatch.setattr(GroupQuestions if asked == "ask" else Lookup, asked, failed_by(error))
    with pytest.raises(SourceError) as caught:
        call(cluster)
    assert str(caught.value) == (
        f"cannot read from the cluster at 127.0.0.1:1 ({request}, Kafka 3.6): "
        f"{type(error).__name__}: {error}"
    )


@pytest.mark.parametrize("code", [29, 30, 31])
def test_a_missing_right_is_reported_as_such(cluster, monkeypatch, code):
    refused = RemoteProtocolError("no", error_code=code)
    monkeypatch.setattr(GroupQuestions, "ask", failed_by(refused))
    with pytest.raises(SourceError, match="the principal may not read that from 127"):
        cluster.group_names()


def test_a_broker_that_is_too_old_is_told(cluster, monkeypatch):
    def too_old(self, timeout_ms=None):
        raise RemoteProtocolError("it cannot be used: it is Kafka 2.4", error_code=35)

    monkeypatch.setattr(Connections, "open", too_old)
    with pytest.raises(SourceError, match=r"from the cluster: .*it is Kafka 2\.4"):
        cluster.check()


def test_a_topic_has_its_id_as_kafkas_tools_show_it():
    topic_id = UUID("b06f7a4e-53f8-4cfd-8e89-c515f5aab1c3")
    few = ClusterTopic(name="few", topic_id=topic_id, leaders={0: 1, 1: -1})
    assert topic_rows([few]) == [("sG96TlP4TP2OicUV9aqxww", "few", 2)]
