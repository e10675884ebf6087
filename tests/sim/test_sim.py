"""The world: it repeats from its seed, random runs break no rule, the document's goals hold."""

from __future__ import annotations

import pytest
from tests.proof.random_runs import random_run, soak
from tests.proof.rules.attached import simulate
from tests.sim.faults.small_worlds import loads, world
from tests.suites import long

from holdfast.core.machine.policy import Policy
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.errors import ConfigError
from holdfast.sim.clock import OwnershipLog
from holdfast.sim.scenarios import SCENARIOS, SIMULATED, ScenarioStep, Setup


@pytest.mark.parametrize(
    "seed",
    [
        # a new member was reserved what it does not subscribe to, so that it went to a survivor
        176,
        1941,  # an answer on its way when the coordinator lost its round: generations are recounted
        3553,  # the same, and a static member is back before it is noticed
        7094,  # all members of a group were fenced, and nothing was settled any more
        10_800,  # a new member replaces a lost member, with other resources
        14_189,  # as 1941, the next round has the lost one's number
        14_842,  # as 10800, because nobody else reads the topic
        # a commit is answered while its member stalls, and has ended when the answer arrives
        19_705,
        100_474,  # a new member replaces a lost one, and one that has nothing gets the rest
        # a coordinator that lost a record counts a generation twice: two leader states of it
        100_501,
        100_580,  # the same where a new group waits for its first members
    ],
)
def test_a_seed_that_once_failed(seed):
    assert soak(seed, 1).failures == ()


@pytest.mark.parametrize(
    "kinds",
    [{"isolate": True}, {"weights": {"heavy": 5}}, {"isolate": True, "weights": {"heavy": 5}}],
)
@pytest.mark.parametrize("name", ["holdfast-simple", "deferred", "incremental"])
def test_kinds_of_resources_come_and_go_and_no_rule_is_broken(name, kinds):
    policy = Policy(delay_ms=12_000, interval_ms=1_000, batch=2, **kinds)
    w = world(name, 2, partitions={"heavy": 3, "light": 8}, policy=policy)
    for step in (w.start, w.crash, w.start):
        step(2)
        w.run(w.now_ms + 25_000)
    w.resize("light", 11)
    w.run(w.now_ms + 60_000)
    assert w.violations == []
    assert sum(loads(w)) == 14
    own = [[kind for kind, _ in p.running] for p in w.living()]
    if "isolate" in kinds:  # each kind is even by itself
        assert sorted(o.count("heavy") for o in own) == [1, 1, 1]
        assert sorted(o.count("light") for o in own) == [3, 4, 4]
    else:  # no move makes it more even: the fullest has nothing as light as the difference
        weighed = sorted((sum(5 if k == "heavy" else 1 for k in o), o) for o in own)
        (least, _), (most, fullest) = weighed[0], weighed[-1]
        assert most - least <= (1 if "light" in fullest else 5)


def test_a_member_that_bounces_in_an_uneven_group_gets_all_that_it_had():
    policy = Policy(delay_ms=300_000, interval_ms=60_000, batch=1)
    w = world("incremental", 1, partitions={"t": 12}, policy=policy)
    w.start(1)
    w.run(w.now_ms + 40_000)  # batches of one a minute: the group is not even yet
    had = len(w.slots[0].running)
    w.stop(0)
    w.run(w.now_ms + 20_000)
    assert sum(loads(w)) == 12 - had
    w.start(0)
    w.run(w.now_ms + 20_000)
    assert had > 8
    assert sum(loads(w)) == 12
    assert len(w.slots[0].running) >= had - policy.batch
    assert w.violations == []


@pytest.mark.parametrize(
    ("seed", "policy"),
    [
        (78, "deferred"),  # a round that a member missed named it by a location that is shared now
        (98, "deferred"),  # a member that was thrown out is back, another one has its location
        (98, "incremental"),  # the same
        (270, "damped"),  # a new member, named by its location first, is named by its id then
        (646, "incremental"),  # a member of a lost history took a departed member's place
        (874, "incremental"),  # a member that was there took a departed member's place
        (908, "incremental"),  # the same
        (1_085, "deferred"),  # a group of which all are fenced is restarted
        (1_857, "deferred"),  # a static member was there, and missed an assignment; no plan then
        (5_129, "deferred"),  # a static member is back after a round without a plan; no delay
        (5_181, "deferred"),  # the same
        (20_065, "deferred"),  # a coordinator lost a record: two rounds have one number
        (60_008, "incremental"),  # all are thrown out; one comes back and says nothing of itself
        (100_674, "deferred"),  # an older shard does not name a member of the newest round
        (1_000_134, "deferred"),  # a static member is late: a round continues with its old claims
    ],
)
def test_a_seed_of_one_policy_that_once_failed(seed, policy):
    assert random_run(seed, policy=policy).violations == ()


@pytest.mark.parametrize("part", long(range(25)))
def test_five_hundred_random_runs_break_no_rule(part):
    outcome = soak(part * 20, 20)
    assert [(f.seed, f.policy, f.violations[0]) for f in outcome.failures] == []
    assert outcome.rounds > 20


@pytest.mark.slow
def test_twenty_thousand_random_runs_break_no_rule():
    outcome = soak(100_000, 20_000)
    assert [(f.seed, f.policy, f.violations[0]) for f in outcome.failures] == []


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("policy", SIMULATED)
def test_every_scenario_under_every_policy(scenario, policy):
    report = simulate(Setup(scenario=scenario, policy=policy, members=4, partitions=8))
    assert report.violations == ()
    assert report.partition_seconds_unowned <= report.partition_seconds_stopped + 1e-6
    assert report.rounds > 0
    assert report.bytes_per_round > 0
    assert list(report.to_dict()) == [
        "schema_version",
        "scenario",
        "policy",
        "seed",
        "members",
        "partitions",
        "rounds",
        "moved",
        "moved_to_third",
        "partition_seconds_unowned",
        "partition_seconds_stopped",
        "longest_stop_seconds",
        "time_to_balance_seconds",
        "violations",
    ]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_partition_of_the_kip848_baseline_starts_while_another_member_has_it(
    monkeypatch, scenario
):
    start = OwnershipLog.start

    def alone(ownership_log, resource, *, runner, **more):
        assert ownership_log.runner(resource) in ("", runner)
        start(ownership_log, resource, runner=runner, **more)

    monkeypatch.setattr(OwnershipLog, "start", alone)
    simulate(Setup(scenario=scenario, policy="kip848", members=4, partitions=8))


def test_records_of_a_run_are_real_and_complete():
    from holdfast.sim.scenarios import Play

    play = Play(Setup(members=3, partitions=6))
    play.start_all()
    play.settle()
    play.bounce(1)
    play.settle()
    names = [decode_record(key, value).name for _, key, value in play.world.log]
    assert {"GroupMetadata", "OffsetCommit"} == set(names)


def test_a_scenario_of_steps():
    steps = (
        ScenarioStep(at_ms=1_000, do="stall", slot=1, for_ms=2_000),
        ScenarioStep(at_ms=2_000, do="split", slot=2, for_ms=1_000),
        ScenarioStep(at_ms=5_000, do="crash", slot=3),
        ScenarioStep(at_ms=9_000, do="start", slot=3),
        ScenarioStep(at_ms=20_000, do="resize", count=30),
        ScenarioStep(at_ms=30_000, do="restart-coordinator", for_ms=500),
        ScenarioStep(at_ms=40_000, do="stop", slot=2),
        ScenarioStep(at_ms=50_000, do="jump-clock", for_ms=3_600_000),
    )
    report = simulate(Setup(scenario="story", script=steps, trace=True))
    assert report.violations == ()
    for happened in (
        "m0001.0 stalls for 2000 ms",
        "m0003.0 crashes",
        "m0003.1 starts",
        "topic topic has 30 partitions",
        "coordinator restarts, 500 ms",
        "m0002.0 is asked to stop",
        "the wall clock jumps by 3600000 ms",
    ):
        assert any(happened in line for line in report.trace), happened
    with pytest.raises(ConfigError, match="found 'jump'"):
        simulate(Setup(scenario="story", script=(ScenarioStep(at_ms=0, do="jump"),)))
    with pytest.raises(ConfigError, match="unknown scenario"):
        simulate(Setup(scenario="rolling"))
    with pytest.raises(ConfigError, match="members and partitions"):
        simulate(Setup(members=0))
    with pytest.raises(ConfigError, match="steps"):
        simulate(Setup(scenario="scale-down", members=1))
