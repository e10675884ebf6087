"""KIP-726: two rolling bounces from eager to cooperative, and on to the designs and back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.kips.ways import bounce, plan_upgrade

from holdfast.core.machine.actions import SendJoin
from holdfast.core.machine.leader.assignor_protocol import (
    Assignor,
    MemberView,
    RebalanceProtocol,
    choose_rebalance_protocol,
)
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor, EagerAssignor
from holdfast.core.machine.leader.subscriptions import read_subscribed_member
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.upgrade import (
    Client,
    Config,
    check_group,
    check_step,
    rebalance_protocol_of,
)
from holdfast.core.model.constants import Design
from holdfast.errors import ConfigError
from holdfast.sim.broker import Hooks

RANGE = Config(assignors=("range",))
BOTH = Config(assignors=("cooperative-sticky", "range"))
COOPERATIVE = Config(assignors=("cooperative-sticky",))


def unsafe(findings) -> list[str]:
    return [f.rule for f in findings if f.unsafe]


def test_the_first_bounce_is_safe_and_everybody_still_runs_eager():
    assert rebalance_protocol_of(BOTH) is RebalanceProtocol.EAGER
    assert check_step([RANGE] * 3, [BOTH] * 3) == []


def test_the_second_bounce_is_safe_with_eager_and_cooperative_members_together():
    assert rebalance_protocol_of(COOPERATIVE) is RebalanceProtocol.COOPERATIVE
    findings = check_step([BOTH] * 3, [COOPERATIVE] * 3)
    assert unsafe(findings) == []
    assert [f.rule for f in findings] == ["mixed-modes"]


def test_one_bounce_is_not_enough_and_the_reason_is_said():
    (finding,) = check_step([RANGE], [COOPERATIVE])
    assert finding.rule == "no-common-assignor"
    assert "range" in finding.text
    assert "old and the new" in finding.advice


def test_the_procedure_is_found():
    assert plan_upgrade(RANGE, COOPERATIVE) == [BOTH, COOPERATIVE]
    assert plan_upgrade(COOPERATIVE, RANGE) == [
        Config(assignors=("range", "cooperative-sticky")),
        RANGE,
    ]
    assert plan_upgrade(RANGE, RANGE) == []
    assert plan_upgrade(RANGE, BOTH) == [BOTH]
    designs = Config(assignors=("holdfast-deferred",))
    assert plan_upgrade(RANGE, designs)[0].assignors == ("holdfast-deferred", "range")
    assert len(plan_upgrade(COOPERATIVE, designs)) == 2
    assert len(plan_upgrade(designs, RANGE)) == 2


def test_what_stops_a_step():
    python = Config(assignors=BOTH.assignors, client=Client.KAFKA_PYTHON)
    assert unsafe(check_group([python])) == ["cannot-start"]
    old = Config(assignors=BOTH.assignors, client=Client.JAVA, version=(2, 3))
    assert unsafe(check_group([old])) == ["client-too-old"]
    other = Config(assignors=("range",), protocol_type="holdfast")
    assert unsafe(check_group([RANGE, other])) == ["protocol-type"]
    java = Config(assignors=("holdfast-deferred",), client=Client.JAVA)
    assert unsafe(check_group([java])) == ["unknown-to-client"]
    rust = Config(assignors=BOTH.assignors, client=Client.CONFLUENT)
    assert unsafe(check_group([rust])) == ["cannot-start"]
    for client, assignor in ((Client.CONFLUENT, "sticky"), (Client.JAVA, "lag-sticky")):
        stranger = Config(assignors=(assignor,), client=client)
        assert unsafe(check_group([stranger])) == ["unknown-to-client"]
    assert check_group([Config(assignors=("lag",), client=Client.JAVA)]) == []
    twice = Config(assignors=("range", "range"), client=Client.JAVA)
    assert unsafe(check_group([twice])) == ["cannot-start"]
    assert unsafe(check_group([Config(assignors=())])) == ["no-assignor"]
    with pytest.raises(ConfigError, match="unknown assignor"):
        check_group([Config(assignors=("rang",))])
    with pytest.raises(ConfigError, match="found 1 before and 0 after"):
        check_step([RANGE], [])
    with pytest.raises(ConfigError, match="stop all first"):
        plan_upgrade(RANGE, Config(assignors=("range",), protocol_type="holdfast"))


def test_owned_is_reported_empty_while_eager():
    view = MemberView(
        topics=("t",),
        owned=(),
        previous=(("t", 0),),
        generation=3,
    )
    for assignor in (CooperativeAssignor(), DesignAssignor(Policy(design=Design.SIMPLE))):
        assert read_subscribed_member("m", None, assignor.subscribe(view)).subscription.owned == ()
    assert (
        choose_rebalance_protocol([CooperativeAssignor(), EagerAssignor("range")])
        is RebalanceProtocol.EAGER
    )


PLAIN, STICKY = EagerAssignor("range"), CooperativeAssignor()
SIMPLE, DEFERRED, INCREMENTAL = (DesignAssignor(Policy(design=design)) for design in Design)

PATHS: dict[str, list[Sequence[Assignor]]] = {
    "range to cooperative-sticky": [[PLAIN], [STICKY, PLAIN], [STICKY]],
    "cooperative-sticky back to range": [[STICKY], [STICKY, PLAIN], [PLAIN]],
    "range to Design II": [[PLAIN], [DEFERRED, PLAIN], [DEFERRED]],
    "range to Design I": [[PLAIN], [SIMPLE, PLAIN], [SIMPLE]],
    "range to Design III": [[PLAIN], [INCREMENTAL, PLAIN], [INCREMENTAL]],
    "Design I back to range": [[SIMPLE], [SIMPLE, PLAIN], [PLAIN]],
    "Design II back to range": [[DEFERRED], [DEFERRED, PLAIN], [PLAIN]],
    "Design III back to range": [[INCREMENTAL], [INCREMENTAL, PLAIN], [PLAIN]],
    "cooperative-sticky to Design II": [[STICKY], [DEFERRED, STICKY], [DEFERRED]],
    "Design II back to cooperative-sticky": [[DEFERRED], [DEFERRED, STICKY], [STICKY]],
    "Design II to Design III": [[DEFERRED], [DEFERRED, INCREMENTAL], [INCREMENTAL]],
}


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.replace(" ", "-"))
def test_both_bounces_in_the_world_break_no_rule(path):
    rebalance_protocols, kept = set(), []

    def watch_joins(action_handlers):
        def watched(process, action):
            rebalance_protocols.add(process.member.data.rebalance_protocol)
            for _, metadata in action.protocols:
                if process.member.data.rebalance_protocol is RebalanceProtocol.EAGER:
                    kept.extend(read_subscribed_member("m", None, metadata).subscription.owned)
            action_handlers[SendJoin](process, action)

        return {**action_handlers, SendJoin: watched}

    bounce(PATHS[path], Hooks(action_handlers=watch_joins))
    assert kept == []  # owned is reported empty while EAGER
    assert RebalanceProtocol.COOPERATIVE in rebalance_protocols
