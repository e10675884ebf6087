"""What the documents name and holdfast does not have; the docs say so."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from tests.source import TREES, trees

from holdfast import Worker
from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.policy import POLICIES
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.wire.layouts import container, incremental
from holdfast.core.wire.layouts.consumer_protocol import decode_subscription
from holdfast.core.wire.layouts.container import decode_member_subscription

ROOT = Path(__file__).parents[2]
VIEW = MemberView(
    topics=("t",),
    owned=(("t", 0),),
    previous=(("t", 0),),
    generation=3,
    leader_state=b"share",
)


def words(text: str) -> str:
    return " ".join(text.split())


@TREES
def test_kip_54s_example_listeners_are_no_part_of_the_package():
    classes = {
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    assert not {"OldListener", "NewListener", "MyOldRebalanceListener"} & classes
    page = words((ROOT / "docs" / "members.md").read_text(encoding="utf-8"))
    assert "KIP-54's two example listeners are no part of holdfast" in page
    assert "`initializeOffset` is a `seek()` inside `on_partitions_assigned`" in page


def test_a_new_leader_learns_what_waits_and_the_docs_say_that_this_differs():
    # What it does: test_incremental_cooperative.py, test_leader_exits_newcomer_leads_...
    page = words((ROOT / "docs" / "leader-state.md").read_text(encoding="utf-8"))
    learns = "here it learns the delays from the other members"
    assert f"new to the group assume that nothing waits; {learns}" in page


DESIGNS = [
    design
    for name, info in POLICIES.items()
    if info.design is not None
    for design in assignors_for(name)
]


@pytest.mark.parametrize("design", DESIGNS, ids=lambda d: d.name)
def test_only_a_worker_writes_partition_assignor_data_and_the_docs_say_so(design: DesignAssignor):
    assert decode_member_subscription(design.subscribe(VIEW)).assignor_data is None
    for text in (incremental.__doc__ or "", inspect.getsource(container.MemberSubscription)):
        assert "PartitionAssignorData" in text
    decision = (ROOT / "docs/adr/0010-designs-in-user-data.md").read_text(encoding="utf-8")
    assert (
        "`PartitionAssignorData` has a place in the frames, and only a worker writes it" in decision
    )


def test_a_worker_sends_kafkas_message_with_our_frame_and_the_docs_say_so():
    worker = Worker({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, {"t": 1})
    for design in worker.assignors:
        sent = decode_subscription(design.subscribe(VIEW))
        assert (sent.version, sent.topics) == (3, ("t",))
        assert (sent.user_data or b"").startswith(container.SUBSCRIPTION_MAGIC)
    assert "No member uses them" in words(incremental.__doc__ or "")
