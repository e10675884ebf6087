"""One cluster and one store for these tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cluster import standalone
from tests.stores import servers


@pytest.fixture(scope="session")
def storage_env(tmp_path_factory):
    """Environment of an S3 server."""
    with servers.s3s(tmp_path_factory.mktemp("s3s") / "kept") as environment:
        yield environment


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, storage_env):
    """A master and two workers, of which an executor dies once the file ``killed`` is deleted."""
    folder = tmp_path_factory.mktemp("cluster")
    mark = folder / "killed"
    with standalone.standalone(folder, {**storage_env, "KILL_EXECUTOR_ONCE": str(mark)}) as running:
        for home in running.environments:
            (site,) = home.glob("lib/python*/site-packages")
            shutil.copy(Path(__file__).with_name("killer.py"), site / "sitecustomize.py")
        mark.touch()  # nothing is killed before a test wants it
        yield running
