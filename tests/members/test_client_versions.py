"""Which versions of client libraries are refused, with which text."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from tests.members.running import python

from holdfast.cluster import versions
from holdfast.cluster.versions import RANGES, check

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


@pytest.mark.parametrize(
    ("client", "found", "is_refused"),
    [
        ("kafka-python", "2.0.2", True),
        ("kafka-python", "3.0.11", True),
        ("kafka-python", "3.0", True),
        ("kafka-python", "3.0.12", False),
        ("kafka-python", "3.0.12rc1", False),
        ("kafka-python", "3.1.dev0", True),
        ("kafka-python", "10.0", True),
        ("kafka-python", "no number", True),
        ("aiokafka", "0.11.0", True),
        ("aiokafka", "0.12.0", False),
        ("aiokafka", "0.15.0", True),
        ("confluent-kafka", "2.6.0", True),
        ("confluent-kafka", "2.6.1", False),
        ("confluent-kafka", "3.0.0", False),
    ],
)
def test_versions(monkeypatch, client, found, is_refused):
    monkeypatch.setattr(versions, "version", lambda name: found)
    if not is_refused:
        check(client)
        return
    with pytest.raises(ImportError) as raised:
        check(client)
    said = re.escape(f"is needed, found {found}: pip install 'kafka-holdfast[members]'")
    assert re.fullmatch(f"{client} {RANGES[client].first} or newer.* {said}", str(raised.value))


def test_none_at_all(monkeypatch):
    monkeypatch.setattr(versions, "find_spec", lambda name: None)
    with pytest.raises(
        ModuleNotFoundError, match=r"^kafka-python 3\.0\.12 or newer, below 3\.1 is"
    ):
        check("kafka-python")


@pytest.mark.parametrize("client", RANGES)
def test_the_extras_install_what_is_not_refused(client):
    wanted = RANGES[client]
    bounds = f"{client}>={wanted.first}" + (f",<{wanted.below}" if wanted.below else "")
    found = {one for extra in EXTRAS.values() for one in extra if re.match(rf"{client}\W", one)}
    assert found == {bounds}
    assert bounds in EXTRAS["members"]


@pytest.mark.parametrize("client", RANGES)
def test_the_version_is_that_of_the_metadata(client, monkeypatch):
    assert versions.version(client) == metadata.version(client)
    monkeypatch.setattr(versions.Path, "glob", lambda self, pattern: ())
    assert versions.version(client) == metadata.version(client)


OLD = """
from holdfast.cluster import versions
found = versions.version
versions.version = lambda name: "0.1.2" if name == {client!r} else found(name)
"""


@pytest.mark.parametrize(
    ("client", "statement"),
    [
        ("kafka-python", "from holdfast import Consumer"),
        ("kafka-python", "from holdfast import Worker"),
        ("kafka-python", "import holdfast.kafka"),
        ("kafka-python", "import holdfast.aiokafka"),
        ("kafka-python", "import holdfast.confluent"),
        ("aiokafka", "import holdfast.aiokafka"),
        ("confluent-kafka", "import holdfast.confluent"),
    ],
)
def test_the_import_says_it(client, statement):
    done = python(OLD.format(client=client) + statement)
    assert done.returncode == 1
    hint = "pip install 'kafka-holdfast["
    said = f"ImportError: {client} {RANGES[client]} is needed, found 0.1.2: {hint}"
    assert said in done.stderr


def test_the_assignors_for_kafka_python_say_it():
    without = """
import sys, types
for name in ("kafka", "kafka.coordinator", "kafka.coordinator.assignors",
             "kafka.coordinator.assignors.abstract"):
    sys.modules[name] = types.ModuleType(name)
"""
    statement = "from holdfast.members.clients.kafka.assignors import CooperativeSticky"
    done = python(OLD.format(client="kafka-python") + without + statement)
    assert "ImportError: kafka-python 3.0.12 or newer" in done.stderr
