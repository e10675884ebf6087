"""The modules that an import of a member loads: its own client, holdfast's, few of Python's.

Nothing here measures time: a module that is not loaded costs nothing. ``bench/imports.py``
measures, and ``tests/live/test_loading.py`` checks on which thread the rest is loaded.
"""

from __future__ import annotations

import sys

import pytest
from tests.members.running import python

DEAR = {
    "asyncio",
    "csv",
    "email",
    "http",
    "json",
    "multiprocessing",
    "subprocess",
    "tempfile",
    "xml",
    "zipfile",
}
"""Packages of Python's own that cost as much as a client; ``importlib.metadata`` loads many."""

ITS_CLIENT = {
    "import holdfast.confluent": "import confluent_kafka",
    "import holdfast.aiokafka": "import aiokafka",
    "import holdfast.kafka": "import kafka",
    "from holdfast import Consumer": "import confluent_kafka",
    "from holdfast import Worker": "pass",
}


def loaded(statement):
    """The names of all modules after a statement in a process of its own."""
    done = python(f"{statement}\nimport sys\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ITS_CLIENT)
def test_a_member_loads_its_own_client_and_no_other_package(statement):
    more = loaded(statement) - loaded(ITS_CLIENT[statement])
    ours = {name for name in more if name.split(".")[0] == "holdfast"}
    assert ours
    packages = {name.split(".")[0] for name in more - ours}
    client = ITS_CLIENT[statement].split()[-1]
    assert packages - sys.stdlib_module_names - {client} == set()
    assert packages & DEAR == set()


@pytest.mark.parametrize("statement", ITS_CLIENT)
def test_nobody_loads_what_only_a_leader_needs(statement):
    ours = loaded(statement)
    assert "holdfast.core.assignors.registry" in ours  # its rows, without the assignors
    assert not ours & {
        "holdfast.core.assignors.sticky",
        "holdfast.core.machine.leader.leader",
        "holdfast.core.machine.leader.leader_round",
        "holdfast.core.model.group",
        "numpy",
    }


@pytest.mark.parametrize("statement", [s for s in ITS_CLIENT if s.startswith("import ")])
def test_a_drop_in_loads_the_machine_of_a_member_with_the_first_consumer(statement):
    assert not loaded(statement) & {
        "holdfast.members.runtime.coordinator_client",
        "holdfast.members.runtime.member_thread",
        "holdfast.cluster.keystores",
        "holdfast.core.machine.actions",
        "holdfast.core.machine.events",
        "holdfast.core.machine.leader.designs",
        "holdfast.core.machine.member.member",
        "holdfast.core.wire.one.reader",
    }


def test_the_asyncio_classes_are_loaded_when_they_are_asked_for():
    name = "holdfast.members.clients.confluent.async_consumer"
    assert name not in loaded("import holdfast.confluent")
    assert name in loaded("from holdfast.confluent import AIOConsumer, AsyncDeserializingConsumer")


def test_all_commands_together_load_no_client_no_spark_and_no_pyarrow():
    packages = {
        name.split(".")[0]
        for name in loaded("from holdfast.cli.app import COMMANDS, load; [*map(load, COMMANDS)]")
    }
    assert "click" in packages
    assert not packages & {
        *("kafka", "aiokafka", "confluent_kafka", "pyspark", "pandas", "pyarrow"),
    }
