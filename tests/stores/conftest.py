"""Stores for these tests: one server of each kind a run."""

from __future__ import annotations

import getpass
import uuid

import pytest
from tests.stores import servers
from tests.stores.faulty import relay

from holdfast.fleet.tables.storage import clients, remote
from holdfast.fleet.tables.storage.paths import storage_path


@pytest.fixture(scope="session")
def moto_server():
    with servers.moto() as environment:
        yield environment


@pytest.fixture(scope="session")
def s3s_server(tmp_path_factory):
    with servers.s3s(tmp_path_factory.mktemp("s3s") / "kept") as environment:
        yield environment


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory):
    with servers.hdfs(tmp_path_factory.mktemp("hdfs")) as url:
        yield url


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory):
    with servers.azurite(tmp_path_factory.mktemp("azurite")) as environment:
        yield environment


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("s3s", "azurite", "hdfs")]


@pytest.fixture(params=["moto", *SLOW])
def bucket(request, monkeypatch):
    """URL of a new place on a store: Moto's S3, and in `make soak` s3s-fs, Azurite and HDFS."""
    yield from new_place(request, monkeypatch)


@pytest.fixture(params=["folder", "moto", *SLOW])
def root(request, monkeypatch, tmp_path):
    """A new folder for tables, of this machine or on a store."""
    if request.param == "folder":
        yield tmp_path / "tables"
        return
    for url in new_place(request, monkeypatch):
        yield storage_path(f"{url}/tables")


def new_place(request, monkeypatch):
    forget()
    if request.param == "hdfs":
        url = f"{request.getfixturevalue('hdfs_server')}/{uuid.uuid4().hex}"
        environment = {"HADOOP_USER_NAME": getpass.getuser()}
    else:
        environment = request.getfixturevalue(f"{request.param}_server")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if "spark" in request.fixturenames:
        # The session of the run is older than the store, and its workers have the environment
        # that it started with. They are given this as a cluster gives it: spark.executorEnv.
        workers = request.getfixturevalue("spark").sparkContext.environment
        for name, value in environment.items():
            monkeypatch.setitem(workers, name, value)
    if request.param == "azurite":
        url = new_container(environment)
    yield url if request.param in ("hdfs", "azurite") else new_bucket(environment)
    forget()


@pytest.fixture
def faulty(moto_server, monkeypatch):
    """A relay before Moto, by which our clients find it."""
    for name, value in moto_server.items():
        monkeypatch.setenv(name, value)
    target = moto_server["AWS_ENDPOINT_URL"]
    with relay(int(target.rpartition(":")[2])) as between:
        bucket = new_bucket(moto_server)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{between.port}")
        monkeypatch.setattr(clients, "_REQUEST_S", 2.0)
        forget()
        yield between, f"{bucket}/d"
    forget()


def forget():
    """Forget the clients of stores, and what was sent: as another process, elsewhere."""
    remote._files.clear()
    for name in ("filesystem", "object_store", "hdfs_client"):
        getattr(clients, name).cache_clear()


def new_container(environment):
    """Make a container as its owner would; returns its URL."""
    account, name = environment["AZURE_STORAGE_ACCOUNT"], f"container-{uuid.uuid4().hex}"
    url = f"abfss://{name}@{account}.dfs.core.windows.net"
    clients.filesystem(url).create_dir(name)
    return url


def new_bucket(environment):
    """Make a bucket as its owner would, by another client than ours; returns its URL."""
    import boto3

    name = f"bucket-{uuid.uuid4().hex}"
    boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"]).create_bucket(Bucket=name)
    return f"s3://{name}"
