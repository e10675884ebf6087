"""The archive of classes: made once, used afterwards, and never an obstacle.

A small program with PySpark's jars replaces Spark; the real Java runs it through the script.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from holdfast.local import class_archive as archives
from holdfast.local.class_archive import SETTING, class_archive
from holdfast.local.java import find_java
from holdfast.local.spark_java import OTHER_CLASS_PATHS, java_for_spark, script_of

FOLDER = Path(pyspark.__file__).parent / "jars"
JARS = sorted(FOLDER.glob("*"))
(IVY,) = FOLDER.glob("ivy-*.jar")
SAYS = "Apache Ivy"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "with a space"))
    for name in (SETTING, *OTHER_CLASS_PATHS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(archives, "ROOM_BYTES", 0)
    return tmp_path / "with a space" / "classes"


def run(archive, *options, code=0):
    """What Java prints that is started as Spark's is."""
    script = Path(os.environ["HOLDFAST_CACHE"]) / "java"
    script.parent.mkdir(exist_ok=True)
    script.write_text(script_of(find_java().executable, archive))
    script.chmod(0o700)
    given = archive.options if archive else ()
    line = [script, *given, *options, "-cp", IVY, "org.apache.ivy.Main", "-version"]
    done = subprocess.run(
        [*line, "--add-modules=jdk.incubator.vector"], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stderr == ""
    return done.stdout


def made():
    """An archive that a first run has made."""
    first = class_archive(find_java(), JARS)
    assert first.draft is not None
    (line,) = run(first).splitlines()
    assert line.startswith(SAYS)
    return class_archive(find_java(), JARS)


def from_archive(archive):
    said = run(archive, "-Xlog:class+load")
    return sum("org.apache.ivy" in line and "(top)" in line for line in said.splitlines())


def test_the_first_run_makes_it_and_the_next_ones_use_it(cache):
    archive = made()
    assert archive.draft is None
    assert from_archive(archive) > 10
    assert sorted(path.suffix for path in cache.iterdir()) == [".digest", ".jsa"]
    again = class_archive(find_java(), JARS)
    assert again == archive
    assert run(again).count("\n") == 1


@pytest.mark.parametrize("spoil", [lambda b: b[:-5000], lambda b: b[:-1] + b"?"])
def test_a_damaged_archive_is_made_again(cache, spoil):
    archive = made()
    data = archive.file.read_bytes()
    archive.file.chmod(0o600)
    archive.file.write_bytes(spoil(data))
    assert class_archive(find_java(), JARS) is None
    assert from_archive(made()) > 10


def test_an_archive_that_others_may_write_is_not_used():
    archive = made()
    archive.file.chmod(0o666)
    assert class_archive(find_java(), JARS) is None


def test_two_processes_at_once_make_one_archive(cache):
    one, other = (class_archive(find_java(), JARS) for _ in range(2))
    assert one.draft != other.draft
    run(one)
    kept = one.file.read_bytes()
    assert class_archive(find_java(), JARS).draft is None
    run(other)
    assert one.file.read_bytes() == kept
    assert sorted(path.suffix for path in cache.iterdir()) == [".digest", ".jsa"]


def test_another_java_and_other_jars_have_another_archive(tmp_path):
    java = find_java()
    one = class_archive(java, JARS).file
    assert class_archive(dataclasses.replace(java, home=tmp_path), JARS).file != one
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"a")
    two = class_archive(java, [jar]).file
    jar.write_bytes(b"ab")
    assert len({one, two, class_archive(java, [jar]).file}) == 3


def test_what_a_jvm_that_failed_has_written_is_not_used(cache):
    archive = class_archive(find_java(), JARS)
    failed = script_of(Path("/bin/false"), archive)
    archive.draft.write_bytes(b"half")
    assert subprocess.run(["/bin/sh", "-c", failed], check=False).returncode == 1
    assert list(cache.iterdir()) == []


def test_drafts_and_archives_of_long_ago_are_deleted(cache):
    archive = made()
    old = cache / "other.jsa"
    killed = cache / "some.0.draft"
    for path, age in ((old, archives.UNUSED_SECONDS), (killed, archives.DRAFT_SECONDS)):
        path.write_bytes(b"")
        at = path.stat().st_mtime - age - 60
        os.utime(path, (at, at))
    archive.file.unlink()
    class_archive(find_java(), JARS)
    assert list(cache.iterdir()) == []


def test_where_it_is_switched_off_there_is_none(monkeypatch, cache):
    monkeypatch.setenv(SETTING, "off")
    assert class_archive(find_java(), JARS) is None
    assert not cache.exists()


@pytest.mark.parametrize("name", OTHER_CLASS_PATHS)
def test_where_the_class_path_is_another_one_spark_gets_none(monkeypatch, cache, name):
    monkeypatch.setenv("JAVA_HOME", str(find_java().home))
    monkeypatch.setenv(name, "/some/folder")
    with java_for_spark(FOLDER, is_local=True) as options:
        assert options == ()
    assert not cache.exists()


def test_where_nothing_can_be_written_java_starts_without_one(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "file"))
    assert class_archive(find_java(), JARS) is None
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "two:folders"))
    assert class_archive(find_java(), JARS) is None


def test_a_home_that_may_only_be_read_is_enough_for_an_archive_that_is_there(monkeypatch):
    archive = made()
    monkeypatch.setattr(os, "utime", refuse)
    assert class_archive(find_java(), JARS) == archive


def test_a_full_disk_gets_none(monkeypatch):
    monkeypatch.setattr(archives, "ROOM_BYTES", 2**62)
    assert class_archive(find_java(), JARS) is None


def test_spark_is_given_an_archive_and_on_a_cluster_only_one_that_is_there(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(find_java().home))
    with java_for_spark(FOLDER, is_local=False) as options:
        assert options == ()
    with java_for_spark(FOLDER, is_local=True) as options:
        assert options[0].startswith("-XX:ArchiveClassesAtExit=")
        assert "code=$?" in (Path(os.environ["JAVA_HOME"]) / "bin" / "java").read_text()
    archive = made()
    for is_local in (False, True):
        with java_for_spark(FOLDER, is_local=is_local) as options:
            assert options == archive.options
    assert os.environ["JAVA_HOME"] == str(find_java().home)


def refuse(*_):
    raise PermissionError
