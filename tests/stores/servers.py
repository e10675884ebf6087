"""Storage servers on loopback that end with their test: S3, Azure's blobs, and Hadoop's HDFS.

Moto is a mock. ``s3s-fs`` (crates.io) is an S3 server over a folder; it is built once, by cargo,
into our cache. Azurite is Azure's own emulator, fetched by npm. HDFS is Hadoop's own
MiniDFSCluster, a name node and a data node in one JVM; its jar comes as our others do, and runs
with the Hadoop that PySpark brings.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path

from tests.drafts import draft_of
from tests.ports import free_port

from holdfast.local.jars import cache_folder, resolve
from holdfast.local.java import find_java

HERE = Path(__file__).parent

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def moto() -> Iterator[dict[str, str]]:
    """Moto's S3; yields the environment by which it is found."""
    command = [sys.executable, str(HERE / "moto_process.py")]
    with ended(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ) as server:
        assert server.stdout is not None
        yield CREDENTIALS | {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}"
        }


S3S_VERSION = "0.14.1"
HADOOP = "3.4.1"
JUNIT = "4.13.2"
SHA_256 = (HERE / "jars.sha256").read_text(encoding="utf-8")
"""Of the jars of MiniDFSCluster, which needs JUnit's assertions."""
PINNED = {name: digest for digest, name in map(str.split, SHA_256.splitlines())}


def s3s_program() -> Path:
    """The server's binary, built by cargo where it is not there yet."""
    root = cache_folder() / "tools" / f"s3s-fs-{S3S_VERSION}"
    binary = root / "bin" / "s3s-fs"
    if not binary.exists():
        cargo = shutil.which("cargo")
        assert cargo is not None, "s3s-fs is built by cargo: install Rust"
        command = [cargo, "install", "s3s-fs", "--version", S3S_VERSION, "--locked"]
        subprocess.run([*command, "--features", "binary", "--root", str(root)], check=True)
    return binary


@contextmanager
def s3s(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 server over a folder that is its own; yields the environment by which it is found."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(s3s_program()), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--access-key", CREDENTIALS["AWS_ACCESS_KEY_ID"]]
    command += ["--secret-key", CREDENTIALS["AWS_SECRET_ACCESS_KEY"], str(folder)]
    with (
        (folder.parent / "s3s.log").open("w") as log,
        ended(subprocess.Popen(command, stdout=log, stderr=log, text=True)) as server,
    ):
        wait_for(lambda: answers(port), server)
        yield CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


AZURITE_VERSION = "3.37.0"
AZURE = {
    "AZURE_STORAGE_ACCOUNT": "devstoreaccount1",
    "AZURE_STORAGE_ACCOUNT_KEY": b64encode(b"not a secret".ljust(64)).decode(),
}


def azurite_program() -> list[str]:
    """Azurite's server of blobs, fetched by npm where it is not there yet."""
    root = cache_folder() / "tools" / f"azurite-{AZURITE_VERSION}"
    main = root / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not main.exists():
        npm = shutil.which("npm")
        assert npm is not None, "Azurite is fetched by npm: install Node.js"
        with draft_of(root) as draft:
            options = ["--no-audit", "--no-fund", "--prefix", str(draft)]
            subprocess.run([npm, "install", *options, f"azurite@{AZURITE_VERSION}"], check=True)
    return ["node", str(main), "--skipApiVersionCheck", "--disableTelemetry"]


@contextmanager
def azurite(folder: Path) -> Iterator[dict[str, str]]:
    """Azure's emulator of blobs; yields the environment by which it is found."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [*azurite_program(), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--location", str(folder)]
    account = ":".join(AZURE.values())
    with (
        (folder / "azurite.log").open("w") as log,
        ended(
            subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                text=True,
                env=os.environ | {"AZURITE_ACCOUNTS": account},
            )
        ) as server,
    ):
        wait_for(lambda: answers(port), server)
        yield AZURE | {"AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}"}


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """A name node and a data node; yields their URL, ``hdfs://127.0.0.1:PORT``."""
    folder.mkdir(parents=True, exist_ok=True)
    details = folder / "details.json"
    java = str(find_java().executable)
    command = [
        java,
        "-Xmx512m",
        "-cp",
        ":".join(map(str, minicluster())),
        f"-Dtest.build.data={folder}",
    ]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]
    command += ["-writeDetails", str(details)]
    with (
        (folder / "hdfs.log").open("w") as log,
        ended(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True)) as server,
    ):
        wait_for(lambda: details.exists() and details.read_text().strip(), server)
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"


def minicluster() -> list[Path]:
    """Class path of MiniDFSCluster."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    own = Path(next(iter(spec.submodule_search_locations))) / "jars"
    names = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "log4j-", "jcl-over-slf4j")
    brought = sorted(jar for jar in own.glob("*.jar") if jar.name.startswith(names))
    coordinates = [f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}", f"junit:junit:{JUNIT}"]
    without = ("hadoop-client-api", "hadoop-client-runtime", "hamcrest-core")
    found = resolve(coordinates, f"hadoop-client-minicluster-{HADOOP}", without=without)
    wanted = [jar for jar in found if jar.name in PINNED]
    assert len(wanted) == len(PINNED)
    for jar in wanted:
        with jar.open("rb") as file:
            assert file_digest(file, "sha256").hexdigest() == PINNED[jar.name], jar
    return [*wanted, *brought]


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_for(ready: Callable[[], object], server: subprocess.Popen[str]) -> None:
    """Wait until a server is up; an error if it has ended."""
    while not ready():
        assert server.poll() is None, f"{server.args}: ended with {server.returncode}"
        time.sleep(0.1)


@contextmanager
def ended(server: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process, ended with the block; one that reads its standard input ends with us too."""
    try:
        yield server
    finally:
        server.kill()
        server.communicate()
