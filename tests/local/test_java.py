"""Which Java is chosen, and the text if none fits."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import JavaError
from holdfast.local import java


def fake_java(folder: Path, version: str, *, home: Path | None = None) -> Path:
    """A shell script that answers like ``java -XshowSettings:properties -version``."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home or folder}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    return executable


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setattr(java.shutil, "which", lambda name: None)


def test_java_home_wins_over_path(tmp_path, monkeypatch):
    fake_java(tmp_path / "home", "21")
    on_path = fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(on_path))
    found = java.find_java()
    assert (found.version, found.home) == (21, tmp_path / "home")
    assert found.executable == tmp_path / "home" / "bin" / "java"


@pytest.mark.parametrize("bad", ["1.8", "11", "16", "24", "25"])
def test_java_home_that_does_not_fit_gives_way_to_path(tmp_path, monkeypatch, bad):
    fake_java(tmp_path / "home", bad)
    on_path = fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(on_path))
    assert java.find_java().home == tmp_path / "path"


@pytest.mark.parametrize("good", ["17", "18", "21", "23"])
def test_accepts_what_kafka_and_spark_can_run(tmp_path, monkeypatch, good):
    fake_java(tmp_path, good)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java().version == int(good)


def test_a_shim_leads_to_the_real_home(tmp_path, monkeypatch):
    real = fake_java(tmp_path / "real", "17")
    shim = fake_java(tmp_path / "shims", "17", home=tmp_path / "real")
    monkeypatch.setattr(java.shutil, "which", lambda name: str(shim))
    assert java.find_java().executable == real


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, ("JAVA_HOME", "PATH")),
        ("", ("{home}", "not an executable file")),
        ("echo java.home = h >&2\necho java.specification.version = 11 >&2", ("is Java 11",)),
        ("exit 3", ("{home}", "does not answer like a Java", "3")),
    ],
    ids=["none", "a folder without it", "an old one", "another program"],
)
def test_what_is_no_usable_java_is_named_in_one_line(tmp_path, monkeypatch, script, words):
    if script is not None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if script:
        executable = tmp_path / "bin" / "java"
        executable.parent.mkdir()
        executable.write_text(f"#!/bin/sh\n{script}\n")
        executable.chmod(0o755)
    with pytest.raises(JavaError) as caught:
        java.find_java()
    text = str(caught.value)
    assert "\n" not in text and "install a JDK 17 or 21" in text
    for word in words:
        assert word.format(home=tmp_path) in text


def test_sparks_java_is_run_without_the_module_that_java_warns_of(tmp_path, monkeypatch):
    home = tmp_path / "a java"
    executable = fake_java(home, "17")
    executable.write_text(executable.read_text() + 'printf "%s|" "$@"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    with java.java_for_spark(is_local=True):
        script = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
        line = [script, "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == "-cp|a b|Main|"
    assert os.environ["JAVA_HOME"] == str(home)
    with java.java_for_spark(is_local=False):  # executors use it later
        assert os.environ["JAVA_HOME"] == str(home)
