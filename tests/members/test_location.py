"""The location of a member: the key, the default, and a leader that sees one location twice."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from tests.machine.subscribed import subscribed
from tests.members.configured import settings_of

from holdfast.core.machine.leader.subscriptions import shared_locations
from holdfast.members.config.policy import location_of, supervisor_names
from holdfast.members.runtime.leader_planner import LeaderWarnings
from holdfast.members.runtime.member_status import MemberLog

NOWHERE = Path("/nowhere/cgroup")


def cgroups(tmp_path, text):
    path = tmp_path / "cgroup"
    path.write_text(text)
    return path


def test_the_key_says_it_alone():
    a, b = (settings_of(holdfast_location="one", client_id=name) for name in "ab")
    assert location_of(a) == location_of(b) != location_of(settings_of(client_id="a"))


def test_by_default_it_is_the_host_and_the_client_id(monkeypatch):
    monkeypatch.delenv("POD_NAME", raising=False)
    one = location_of(settings_of(client_id="a"))
    assert one == location_of(settings_of(client_id="a")) != location_of(settings_of(client_id="b"))
    monkeypatch.setenv("POD_NAME", "etl-0")
    assert location_of(settings_of(client_id="a")) != one


@pytest.mark.parametrize(
    ("environ", "text", "names"),
    [
        ({}, "0::/\n", ()),
        ({}, "0::/user.slice/user-0.slice/session-3.scope\n", ()),
        ({}, "0::/system.slice/system-etl.slice/etl@2.service\n", ("etl@2.service",)),
        (
            {},
            "2:cpu:/system.slice/etl@2.service\n1:name=systemd:/system.slice/etl@2.service\n",
            ("etl@2.service",),
        ),
        (
            {"SUPERVISOR_PROCESS_NAME": "etl_01", "HOME": "/"},
            "0::/",
            ("SUPERVISOR_PROCESS_NAME=etl_01",),
        ),
        ({"DYNO": "worker.2", "POD_NAME": ""}, "0::/", ("DYNO=worker.2",)),
    ],
)
def test_a_supervisor_names_the_process(tmp_path, environ, text, names):
    assert supervisor_names(environ, cgroups(tmp_path, text)) == names


def test_without_cgroups_the_variables_count():
    assert supervisor_names({"NOMAD_ALLOC_NAME": "etl.w[1]"}, NOWHERE) == (
        "NOMAD_ALLOC_NAME=etl.w[1]",
    )


def located(name, location, **fields):
    return subscribed(name, topics=("t",), location=location, **fields)


def test_members_that_say_one_location_are_named_and_static_ones_need_none():
    members = [
        located("b", b"1234"),
        located("a", b"1234"),
        located("c", b"5678"),
        located("d", b""),
    ]
    members += [located("e", b""), located("s", b"5678", instance_id="s")]
    assert shared_locations(members) == (("a", "b"),)


def test_a_leader_warns_once_and_names_the_key_as_the_program_writes_it(caplog):
    words = {"holdfast.location": "holdfast_location", "client.id": "client_id"}
    settings = replace(settings_of(), user_names=words)
    warns = LeaderWarnings(settings, MemberLog(settings))
    with caplog.at_level(logging.WARNING, "holdfast.member"):
        warns.log_shared_locations([located("a", b"1234"), located("b", b"5678")])
        assert not caplog.records
        for _ in range(2):
            warns.log_shared_locations([located(f"m{i}", b"1234") for i in range(7)])
    (record,) = caplog.records
    said = record.getMessage()
    assert "7 members" in said and "m0, m1, m2, m3, m4 and 2 more" in said
    assert "holdfast_location" in said and "client_id" in said
