"""Stores for these tests: one server of each kind a run."""

from __future__ import annotations

import uuid

import pytest
from tests.stores import servers

from holdfast.tables import filesystems


@pytest.fixture(scope="session")
def moto_server():
    with servers.moto() as environment:
        yield environment


@pytest.fixture
def bucket(moto_server, monkeypatch):
    """URL of a new bucket of Moto's."""
    for name, value in moto_server.items():
        monkeypatch.setenv(name, value)
    filesystems.filesystem.cache_clear()
    yield new_bucket(moto_server)
    filesystems.filesystem.cache_clear()


def new_bucket(environment):
    """Make a bucket as its owner would, by another client than ours."""
    import boto3

    name = f"bucket-{uuid.uuid4().hex}"
    boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"]).create_bucket(Bucket=name)
    return f"s3://{name}"
