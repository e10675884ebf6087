"""What a user of an old kafka-python is told."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from holdfast.adapters import kafka_python_version
from holdfast.adapters.kafka_python_version import explained

ERROR = ImportError("cannot import name 'RebalanceProtocol'")


@pytest.mark.parametrize(
    ("found", "is_old"),
    [
        ("2.0.2", True),
        ("2.2.15", True),
        ("3.0.11", True),
        ("3.0", True),
        ("3.0.12", False),
        ("3.0.12rc1", False),
        ("3.1.dev0", False),
        ("10.0", False),
    ],
)
def test_versions(monkeypatch, found, is_old):
    monkeypatch.setattr(kafka_python_version, "version", lambda name: found)
    said = explained(ERROR)
    if is_old:
        assert str(said).startswith(f"kafka-python 3.0.12 or newer is needed, found {found}")
    else:
        assert said is ERROR


def test_none_at_all(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(kafka_python_version, "version", missing)
    assert "kafka-python 3.0.12 or newer is needed: pip install" in str(explained(ERROR))


OLD = """
import importlib.metadata, sys, types
for name in ("kafka", "kafka.coordinator", "kafka.coordinator.assignors",
             "kafka.coordinator.assignors.abstract", "kafka.structs", "kafka.net"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["kafka"].__path__ = []
importlib.metadata.version = lambda name: "2.2.15"
"""


@pytest.mark.parametrize(
    "statement",
    ["from holdfast.adapters.kafka_python import Deferred", "from holdfast import Consumer"],
)
def test_the_first_import_says_it(statement):
    done = subprocess.run(
        [sys.executable, "-c", OLD + statement], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ImportError: kafka-python 3.0.12 or newer is needed, found 2.2.15" in done.stderr
