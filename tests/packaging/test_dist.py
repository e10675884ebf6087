"""`make dist`: what the wheel and the sdist contain."""

from __future__ import annotations

import email
import os
import subprocess
import tarfile
import tomllib
import zipfile

import pytest
from tests.packaging.building import README, ROOT, built, install_lines

SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MUST = (
    "holdfast/py.typed",
    "holdfast/local/jars.sha256",
    "holdfast/fleet/pipeline/log4j2.properties",
    "holdfast/fleet/report/drawing/page/main.js",
    "holdfast/fleet/report/drawing/page/style.css",
)
"""Data files that code opens by name, one at least of every folder that has some."""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Folder of what ``make dist`` built, and nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-s", "dist", f"DIST={folder}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=alone)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_two_files_are_built(dist):
    name = f"kafka_holdfast-{PROJECT['version']}"
    assert {path.name for path in dist.iterdir()} == {
        f"{name}-py3-none-any.whl",
        f"{name}.tar.gz",
    }


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    ours = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "holdfast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if name.startswith("holdfast/")}
    assert packed == ours
    assert packed >= set(MUST)
    info = f"kafka_holdfast-{PROJECT['version']}.dist-info"
    assert {name for name in wheel.namelist() if name not in packed} == {
        f"{info}/{name}"
        for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    }
    assert not [name for name in wheel.namelist() if name.endswith((".jar", ".pyc"))]


def test_the_wheel_says_what_it_is(wheel):
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    said = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert said.get_all("Provides-Extra") == sorted(PROJECT["optional-dependencies"])
    assert (said["License-Expression"], said["License-File"]) == ("Apache-2.0", "LICENSE")
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert said.get_payload(decode=True) == README.encode()
    assert b"holdfast = holdfast.cli.app:main" in wheel.read(f"{info}/entry_points.txt")


def test_the_sdist_builds_the_same_wheel(dist, tmp_path):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    (first,) = dist.glob("*.whl")
    again = built("wheel", tmp_path / "again", tree=tree)
    assert (again.name, again.read_bytes()) == (first.name, first.read_bytes())
    assert {"tests", "docs", "Makefile", "requirements.lock"} <= {p.name for p in tree.iterdir()}


def test_the_page_has_one_line_for_every_extra(dist):
    (wheel,) = dist.glob("*.whl")
    lines = install_lines()
    for extras, line in lines.items():
        inside = f"[{extras}]" if extras else ""
        assert line == f"pip install 'dist/{wheel.name}{inside}'"
    named = {extra for extras in lines for extra in extras.split(",")}
    assert named == {"", *PROJECT["optional-dependencies"]}
