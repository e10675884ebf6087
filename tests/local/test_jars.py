"""The jar cache: complete or absent, holdfast's alone, safe for two processes at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, JavaError
from holdfast.local import jars


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    for name in ("HOLDFAST_JARS", "HOLDFAST_IVY_SETTINGS", "HOLDFAST_SPARK_CONNECTOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def ivy(monkeypatch):
    """Stands for Ivy: writes two jars. ``answers``: what the next runs say (None: success)."""

    class Ivy:
        def __init__(self):
            self.answers: list[str | None] = []
            self.runs: list[str] = []

        def __call__(self, java, jar, description, out, timeout_s):
            self.runs.append(description.read_text())
            answer = self.answers.pop(0) if self.answers else None
            if answer is None:
                out.mkdir(exist_ok=True)
                (out / "a-1.jar").write_bytes(b"aaaa")
                (out / "b-2.jar").write_bytes(b"bb")
            return answer

    fake = Ivy()
    monkeypatch.setattr(jars, "_run_ivy", fake)
    monkeypatch.setattr(jars, "find_java", lambda: None)
    return fake


def names(paths):
    return [path.name for path in paths]


def test_resolves_once_and_then_from_the_cache(ivy, own_cache):
    notes = []
    first = jars.resolve(["g:m:1"], "m-1", note=notes.append)
    second = jars.resolve(["g:m:1"], "m-1", note=notes.append)
    assert first == second
    assert names(first) == ["a-1.jar", "b-2.jar"]
    assert all(path.parent == own_cache / "jars" / "m-1" for path in first)
    assert len(ivy.runs) == 1
    assert len(notes) == 1
    assert "g:m:1" in notes[0]


def test_description_names_coordinates_and_exclusions(ivy):
    jars.resolve(["org.x:m:1.2"], "m", without=["zz", "aa"])
    (xml,) = ivy.runs
    assert '<dependency org="org.x" name="m" rev="1.2" conf="default->default"/>' in xml
    assert xml.index('"aa"') < xml.index('"zz"')


HARMS = {"missing": None, "cut": b"a", "replaced by one of equal size": b"evil"}


def harmed(folder: Path, harm: str) -> None:
    """Change one jar of a folder, or put another one beside it."""
    if harm == "one more":
        (folder / "evil.jar").write_bytes(b"evil")
    elif HARMS[harm] is None:
        (folder / "a-1.jar").unlink()
    else:
        (folder / "a-1.jar").write_bytes(HARMS[harm])


@pytest.fixture(params=["pinned", "not pinned"])
def is_pinned(request, monkeypatch) -> bool:
    """Whether the file of SHA-256 names the folder."""
    digests = {n: sha256(b).hexdigest() for n, b in (("a-1.jar", b"aaaa"), ("b-2.jar", b"bb"))}
    known = {"m-1": digests} if request.param == "pinned" else {}
    monkeypatch.setattr(jars, "checksums", lambda: known)
    return bool(known)


@pytest.mark.parametrize("harm", [*HARMS, "one more"])
def test_a_damaged_folder_is_fetched_again(ivy, harm, is_pinned):
    first = jars.resolve(["g:m:1"], "m-1")
    harmed(first[0].parent, harm)
    assert names(jars.resolve(["g:m:1"], "m-1")) == ["a-1.jar", "b-2.jar"]
    assert first[0].read_bytes() == b"aaaa"
    assert len(ivy.runs) == 2


@pytest.mark.parametrize("harm", [*HARMS, "one more"])
def test_given_jars_that_are_others_are_refused(ivy, harm, is_pinned, tmp_path, monkeypatch):
    folder = jars.resolve(["g:m:1"], "m-1")[0].parent
    monkeypatch.setenv("HOLDFAST_JARS", str(folder.parent))
    assert len(jars.resolve(["g:m:1"], "m-1")) == 2
    harmed(folder, harm)
    with pytest.raises(JavaError, match=r"HOLDFAST_JARS: .*(evil|a-1)\.jar .*; copy"):
        jars.resolve(["g:m:1"], "m-1")


@pytest.mark.parametrize("other", ["a-1.jar", "b-2.jar", "c-3.jar"])
def test_a_download_that_is_another_file_is_refused(ivy, other, own_cache, monkeypatch):
    wanted = {"a-1.jar": sha256(b"aaaa").hexdigest(), "b-2.jar": sha256(b"bb").hexdigest()}
    wanted[other] = "0" * 64
    monkeypatch.setattr(jars, "checksums", lambda: {"m-1": wanted})
    with pytest.raises(JavaError, match=f"not the expected file: .*{other}"):
        jars.resolve(["g:m:1"], "m-1")
    assert list((own_cache / "jars").iterdir()) == []


SERVERS = {
    "2.5.1": 35,
    "2.8.2": 38,
    "3.3.2": 42,
    "3.6.2": 55,
    "3.9.1": 57,
    "4.0.2": 44,
    "4.3.1": 46,
}
"""Jars of each version of Kafka that is pinned."""


def test_every_version_that_we_bring_is_pinned():
    held = jars.checksums()
    servers = {version: len(held[jars.broker_folder(version)]) for version in SERVERS}
    assert servers == SERVERS
    assert set(held["spark-sql-kafka-0-10_2.13-4.0.0"]) >= {"spark-sql-kafka-0-10_2.13-4.0.0.jar"}
    assert all(re.fullmatch("[0-9a-f]{64}", d) for jar in held.values() for d in jar.values())


def test_set_up_installs_nothing_without_its_hash():
    script = (Path(__file__).parents[2] / "tools" / "setup.sh").read_text(encoding="utf-8")
    installs = [line for line in script.splitlines() if re.search(r"pip (install|sync)", line)]
    assert len(installs) >= 3
    for line in installs:
        assert "--require-hashes" in line or ("--no-deps" in line and "-e ." in line), line


def test_a_failure_leaves_nothing_behind_and_says_why(ivy, own_cache):
    ivy.answers = [":: org.x#m;1: not found\nUNRESOLVED DEPENDENCIES"] * 3
    with pytest.raises(JavaError) as caught:
        jars.resolve(["org.x:m:1"], "m-1")
    text = str(caught.value)
    assert "\n" not in text
    for word in ("org.x:m:1", "not found", "HOLDFAST_JARS", "HOLDFAST_IVY_SETTINGS"):
        assert word in text
    assert list((own_cache / "jars").iterdir()) == []


def test_a_passing_fault_of_the_network_is_tried_again(ivy):
    ivy.answers = ["connection refused", None]
    assert names(jars.resolve(["g:m:1"], "m-1")) == ["a-1.jar", "b-2.jar"]
    assert len(ivy.runs) == 2


def test_threads_at_once_download_once(ivy):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(jars.resolve(["g:m:1"], "m-1")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(paths == found[0] for paths in found)
    assert len(ivy.runs) == 1


def test_processes_at_once_see_only_whole_folders(tmp_path):
    """Each process would write for 0.3 s; all of them see both jars."""
    program = """
import sys, time
from holdfast.local import jars
def run(java, jar, description, out, timeout_s):
    out.mkdir(); (out / "a-1.jar").write_bytes(b"a"); time.sleep(0.3)
    (out / "b-2.jar").write_bytes(b"b"); print("ran")
jars._run_ivy = run; jars.find_java = lambda: None
print(len(jars.resolve(["g:m:1"], "m-1")))
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [run.communicate(timeout=60)[0].split() for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert sorted(output[-1] for output in outputs) == ["2", "2", "2"]
    assert sum("ran" in output for output in outputs) == 1


def test_given_jars_are_taken_and_nothing_is_fetched(ivy, tmp_path, monkeypatch):
    (tmp_path / "given" / "m-1").mkdir(parents=True)
    (tmp_path / "given" / "m-1" / "x.jar").write_bytes(b"x")
    monkeypatch.setenv("HOLDFAST_JARS", str(tmp_path / "given"))
    assert names(jars.resolve(["g:m:1"], "m-1")) == ["x.jar"]
    with pytest.raises(JavaError, match="HOLDFAST_JARS: no jars in"):
        jars.resolve(["g:other:1"], "other-1")
    assert ivy.runs == []


def test_a_cache_that_cannot_be_written_is_one_line(ivy, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "file"))
    with pytest.raises(JavaError, match="HOLDFAST_CACHE names another"):
        jars.resolve(["g:m:1"], "m-1")


def test_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    assert jars.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("HOLDFAST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert jars.cache_folder() == tmp_path / "xdg" / "holdfast"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / ".cache" / "holdfast"


@pytest.mark.parametrize("own", [None, "~nobody-at-all/cache"])
def test_a_user_without_a_home_is_told_what_to_set(own, monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOLDFAST_CACHE")
    if own:
        monkeypatch.setenv("HOLDFAST_CACHE", own)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(JavaError, match=r"no home folder.*HOLDFAST_CACHE"):
        jars.cache_folder()


def test_connector_is_that_of_the_first_patch(ivy, monkeypatch):
    monkeypatch.setattr(jars, "checksums", dict)
    assert jars.first_patch("4.0.5") == "4.0.0"
    jars.connector_jars("4.0.5")
    assert 'rev="4.0.0"' in ivy.runs[0]
    assert '<exclude module="scala-library"/>' in ivy.runs[0]
    monkeypatch.setenv("HOLDFAST_SPARK_CONNECTOR", "4.0.7")
    jars.connector_jars("4.0.5")
    assert 'rev="4.0.7"' in ivy.runs[1]
    with pytest.raises(ConfigError, match="not a version of PySpark"):
        jars.first_patch("newest")


def test_pyspark_is_found_without_being_imported():
    program = (
        "import sys; from holdfast.local import jars; print(jars._ivy_jar().name);"
        "assert 'pyspark' not in sys.modules"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("ivy-")


def test_without_pyspark_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(jars, "find_spec", lambda name: None)
    with pytest.raises(JavaError, match=r"holdfast\[spark\]"):
        jars._ivy_jar()


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("2.4.1", "Kafka 2.4.1 is older than 2.5, the first release that holdfast works with"),
        ("0.10.2.1", "'0.10.2.1' is not a version of Kafka"),
        ("newest", "'newest' is not a version of Kafka"),
    ],
)
def test_a_version_that_cannot_run_is_refused(version, text):
    with pytest.raises(ConfigError, match=text):
        jars.broker_jars(version)


@pytest.mark.broker
def test_kafka_jars_are_whole(monkeypatch):
    """The real thing, from the cache or from the network."""
    monkeypatch.delenv("HOLDFAST_CACHE")
    found = jars.broker_jars()
    assert len(found) == 46
    assert {"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar"} <= set(names(found))
    with zipfile.ZipFile(next(jar for jar in found if jar.name == "kafka_2.13-4.3.1.jar")) as jar:
        assert "kafka/Kafka.class" in jar.namelist()
    assert len(json.loads((found[0].parent / "jars.json").read_text())) == 46


@pytest.mark.spark
def test_connector_jars_are_whole_and_leave_out_what_pyspark_brings(monkeypatch):
    monkeypatch.delenv("HOLDFAST_CACHE")
    found = jars.connector_jars("4.0.5")
    assert [name.rsplit("-", 1)[0] for name in names(found)] == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    ]
