"""The table of policies: one name, one protocol and one default for every reader."""

from __future__ import annotations

import pytest

from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.machine.policy import DEFAULTS, POLICIES, find_policy, policy_of_protocol
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.errors import ConfigError
from holdfast.fleet.pipeline.replay.session import ReplaySettings, supported_assignors
from holdfast.members.config.policy import assignors_of, policy_of
from holdfast.members.config.settings import Settings
from holdfast.members.worker import Worker
from holdfast.sim.scenarios import Setup
from holdfast.sim.scenarios import assignors_of as simulated_assignors

NEEDED = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def names(assignors):
    return tuple(a.name for a in assignors)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_the_same_protocol_wherever_it_runs(name):
    protocols = POLICIES[name].protocols
    assert names(assignors_for(name)) == protocols
    assert names(assignors_of(Settings.parse({**NEEDED, "holdfast.policy": name}))) == protocols
    assert names(simulated_assignors(Setup(policy=name))) == protocols
    replayed = ReplaySettings(policy=name, assignor=POLICIES[name].assignors[0])
    assert names(supported_assignors(replayed)) == protocols


def test_simple_is_what_users_run():
    assert POLICIES["simple"].protocols == ("cooperative-sticky",)
    assert POLICIES["holdfast-simple"].protocols == ("holdfast-simple",)


def test_a_default_has_one_value():
    member = policy_of(Settings.parse(NEEDED))
    for option in POLICIES["incremental"].options:
        assert getattr(member, option) == getattr(DEFAULTS, option)
        assert getattr(Setup().settings, option) == getattr(DEFAULTS, option)
    replayed = ReplaySettings(policy="incremental", assignor="sticky")
    for option in ("batch", "interval_ms"):
        assert getattr(DEFAULTS, option) == getattr(replayed, option)


@pytest.mark.parametrize("name", POLICIES)
def test_a_worker_runs_the_policy_that_the_row_names(name):
    config = {**NEEDED, "holdfast.policy": name}
    if not POLICIES[name].worker:
        with pytest.raises(ConfigError, match="a worker takes"):
            Worker(config, {"shard": 3})
        return
    Worker(config, {"shard": 3})
    assert POLICIES[POLICIES[name].worker].design is not None


@pytest.mark.parametrize("name", ASSIGNORS)
def test_an_assignors_name_is_a_policy_too(name):
    row = find_policy(name)
    assert (row.protocols, row.cooperative) == ((name,), ASSIGNORS[name].cooperative)
    assert policy_of_protocol(name) in (POLICIES["simple"], POLICIES["eager"])


def test_protocols_of_other_software_are_no_policy():
    assert policy_of_protocol("compatible") is None
    with pytest.raises(ConfigError, match="unknown policy 'deferrd'; did you mean deferred"):
        find_policy("deferrd")


def test_options_go_to_the_assignors_that_take_them():
    supported = assignors_for(
        "simple", DEFAULTS.__class__(options={"max_skew": 1}), ("lag-sticky", "range")
    )
    assert [a.options for a in supported] == [{"max_skew": 1}, {}]
    with pytest.raises(ConfigError, match="unknown option 'speed'"):
        assignors_for("simple", DEFAULTS.__class__(options={"speed": 1}), ("lag-sticky", "range"))
    with pytest.raises(ConfigError, match="takes one assignor"):
        assignors_for("deferred", assignors=("sticky", "range"))


@pytest.mark.parametrize("name", [name for name, a in ASSIGNORS.items() if not a.uses_claims])
def test_a_design_that_waits_takes_no_target_that_ignores_claims(name):
    """A bounce would move as many as without the design: nobody would come back to its own."""
    for policy in ("deferred", "incremental"):
        with pytest.raises(ConfigError, match=r"take (cooperative-sticky|lag-sticky)"):
            assignors_for(policy, assignors=(name,))
        (design,) = assignors_for(policy)
        assert design.policy.assignor == "cooperative-sticky"
    if not ASSIGNORS[name].uses_lags:
        (simple,) = assignors_for("holdfast-simple", assignors=(name,))
        assert simple.policy.assignor == name
