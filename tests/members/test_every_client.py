"""The meaning of one configuration in the spelling of every client; without a broker."""

from types import SimpleNamespace

import kafka
import pytest
from tests.members.configured import CLIENTS, NEEDED, STRATEGY, keys
from tests.members.fake_member import done
from tests.members.worker_group import WorkerGroup

from holdfast import Consumer, Worker
from holdfast.cluster.lookup import LATEST
from holdfast.core.machine.member.member_data import LAST_COMMIT_MS
from holdfast.members.clients.aiokafka import assignors as aiokafka_assignors
from holdfast.members.clients.kafka import assignors as kafka_assignors
from holdfast.members.clients.kafka import consumer as of_kafka
from holdfast.members.config.policy import assignors_of, make_member
from holdfast.members.runtime.coordinator_client import BrokerLags, lag_source_of

POLICY = "holdfast.policy"
KINDS, ISOLATE = "holdfast.kinds", "holdfast.isolate"


every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


def offered(client, **more):
    return assignors_of(client({**NEEDED, **keys(**more)}))


@every_client
@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_a_policy_alone_gives_everybody_its_own_partitions_back(client, policy):
    (design,) = offered(client, holdfast_policy=policy)
    assert (design.name, design.policy.assignor) == (f"holdfast-{policy}", "cooperative-sticky")


@every_client
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "fair", "lag"])
def test_a_target_that_ignores_claims_is_refused_with_the_one_to_take(client, strategy):
    with pytest.raises(Exception, match=r"; take (cooperative|lag)-sticky"):
        offered(client, holdfast_policy="deferred", partition_assignment_strategy=strategy)


@pytest.mark.parametrize("make", [Consumer, lambda config: Worker(config, {"shard": 2})])
def test_a_constructor_refuses_it_however_it_is_configured(make):
    for key in (STRATEGY, "holdfast.target.assignor"):
        with pytest.raises(Exception, match="take cooperative-sticky"):
            make({**NEEDED, POLICY: "incremental", key: "range"})


@every_client
def test_topics_are_treated_by_themselves_under_a_design_alone(client):
    kinds = {"orders": {POLICY: "simple"}, "clicks": {"weight": "3"}}
    (design,) = offered(client, holdfast_policy="deferred", holdfast_kinds=kinds)
    policy = design.policy
    assert (policy.delay_of("orders"), policy.delay_of("clicks")) == (0, 300_000)
    assert (policy.weights, policy.isolate) == ({"clicks": 3}, False)
    (design,) = offered(client, holdfast_policy="deferred", holdfast_isolate=True)
    assert design.policy.isolate
    for refused in ({KINDS: kinds}, {ISOLATE: True}):
        with pytest.raises(Exception, match="only the leader of a design"):
            offered(client, **{STRATEGY: "cooperative-sticky", **refused})


def test_a_worker_offers_no_design_that_cannot_run_its_assignor():
    def names(**more):
        return [a.name for a in Worker({**NEEDED, **keys(**more)}, {"shard": 2}).assignors]

    assert names(partition_assignment_strategy="range") == ["holdfast-simple"]
    assert len(names(partition_assignment_strategy="sticky")) == 3
    with pytest.raises(Exception, match="take cooperative-sticky"):
        Worker({**NEEDED, STRATEGY: "range", KINDS: {"shard": {POLICY: "deferred"}}}, {"shard": 2})


def cluster():
    """100 records in each partition, and no commit of the group."""
    lookup = SimpleNamespace(
        list_offsets=lambda tps, at: done(dict.fromkeys(tps, 100 if at == LATEST else 0))
    )
    return SimpleNamespace(committed=lambda tps, stable: done({})), lookup


@every_client
@pytest.mark.parametrize(("reset", "lag"), [("latest", 0), ("earliest", 100), (None, 0)])
def test_a_partition_without_a_commit_lags_as_auto_offset_reset_says(client, reset, lag):
    """KAFKA-5337: with ``latest`` it has no lag. That is the default of every client."""
    given = {} if reset is None else {"auto.offset.reset": reset}
    source = lag_source_of(client({**NEEDED, **given}), *cluster())
    assert source({"orders": 2}) == {"orders": [lag, lag]}


@every_client
def test_a_source_of_the_program_is_asked_by_a_design(client):
    def source(counts):
        return {topic: [7] * n for topic, n in counts.items()}

    given = {
        **NEEDED,
        POLICY: "deferred",
        "holdfast.target.assignor": "lag-sticky",
        "holdfast.lag.source": source,
    }
    assert lag_source_of(client(given), *cluster()) is source
    assert lag_source_of(client({**given, "holdfast.lag.source": "none"}), *cluster()) is None
    by_itself = {key: value for key, value in given.items() if key != "holdfast.lag.source"}
    assert isinstance(lag_source_of(client(by_itself), *cluster()), BrokerLags)


@pytest.mark.parametrize(
    ("client", "plugin"),
    [(CLIENTS["aiokafka"], aiokafka_assignors), (CLIENTS["kafka"], kafka_assignors)],
)
def test_the_source_of_a_stock_clients_assignor_stays_with_it_in_a_drop_in(client, plugin):
    def source(counts):
        return {}

    given = plugin.assignor("lag", group_id="g", lags=source)
    made = client({**NEEDED, STRATEGY: given})
    assert lag_source_of(made, *cluster()) is source
    other = client({**NEEDED, STRATEGY: given, "holdfast.lag.source": "none"})
    assert other["holdfast.lag.source"] == "none"


def test_two_sources_in_one_list_are_refused():
    both = [
        kafka_assignors.assignor(name, lags=lambda _, n=name: {}) for name in ("lag-sticky",) * 2
    ]
    whole = {**kafka.KafkaConsumer.DEFAULT_CONFIG, "bootstrap_servers": "x:1", "group_id": "g"}
    with pytest.raises(Exception, match="several lag sources"):
        of_kafka.settings_of({**whole, "partition_assignment_strategy": both}, {}, written=())


def test_a_worker_takes_loads_from_its_source():
    """One shard of four weighs as much as the three others."""
    config = {**NEEDED, "holdfast.target.assignor": "lag-sticky"}
    asked = []

    def loads(counts):
        asked.append(dict(counts))
        return {"shard": [30, 10, 10, 10]}

    options = {"holdfast.assignor.options": {"max_skew": 4}}
    worker = Worker({**config, **options, "holdfast.lag.source": loads}, {"shard": 4})
    group = WorkerGroup({"A": worker, "B": worker})
    group.play("A", "B")
    assert {group.owned("A"), group.owned("B")} == {(0,), (1, 2, 3)}
    assert asked == [{"shard": 4}]
    for refused in ({}, {"holdfast.lag.source": "none"}):
        with pytest.raises(Exception, match="a worker takes a function"):
            Worker({**config, **refused}, {"shard": 4})
    with pytest.raises(Exception, match="takes no weights"):
        kinds = {KINDS: {"shard": {"weight": 2}}}
        Worker({**config, "holdfast.lag.source": loads, **kinds}, {"shard": 4})


POLL, DRAIN = "max.poll.interval.ms", "holdfast.drain.timeout.ms"


def options_of(client, config):
    settings = CLIENTS[client]({**NEEDED, **config})
    return make_member(settings, assignors_of(settings)).data.options


def called(client, key):
    return key.replace(".", "_") if client in ("kafka", "aiokafka") else key


@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "aiokafka"])
def test_a_revocation_waits_as_long_as_the_application_may_work(client):
    for config, poll_ms in (({}, 300_000), ({POLL: 400_000}, 400_000)):
        options = options_of(client, config)
        assert (options.drain_timeout_ms, options.max_poll_interval_ms) == (poll_ms, poll_ms)
        assert options.drain_setting == options.poll_setting == called(client, POLL)
        least_ms = poll_ms + options.heartbeat_interval_ms + LAST_COMMIT_MS
        assert options.rebalance_timeout_ms >= least_ms


@pytest.mark.parametrize("client", CLIENTS)
def test_the_key_of_ours_makes_the_wait_shorter_and_never_longer(client):
    shorter = options_of(client, {DRAIN: 2_000})
    assert (shorter.drain_timeout_ms, shorter.drain_setting) == (2_000, called(client, DRAIN))
    longer = options_of(client, {DRAIN: 900_000})
    assert (longer.drain_timeout_ms, longer.drain_setting) == (300_000, called(client, POLL))


def test_a_revocation_of_aiokafka_waits_as_long_as_it_tells_the_group():
    session = options_of("aiokafka", {"session.timeout.ms": 45_000})
    assert (session.drain_timeout_ms, session.drain_setting) == (45_000, "session_timeout_ms")
    rebalance = options_of("aiokafka", {"rebalance.timeout.ms": 120_000})
    assert (rebalance.drain_timeout_ms, rebalance.drain_setting) == (
        120_000,
        "rebalance_timeout_ms",
    )
    assert rebalance.rebalance_timeout_ms > 120_000
