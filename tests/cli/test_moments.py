"""``--since``, ``--until`` and ``--timeout``, and one meaning for each option."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from tests.cli.running import run, write_tables
from tests.report.fleet import rolling_bounce, tables

from holdfast.cli import app as cli_app
from holdfast.cli.option_values import parse_moment_us, read_window
from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import ConfigError
from holdfast.fleet.pipeline.batches import watch as job

NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW_US - 7_200_000_000),
        ("2h ago", NOW_US - 7_200_000_000),
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:01", 60_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.5Z", 500_000),
    ],
)
def test_a_moment_is_a_time_or_how_long_ago_it_was(text, expected):
    assert parse_moment_us(text, "--since", NOW_US) == expected


@pytest.mark.parametrize("text", ["90", "90 ago", "yesterday", "", "20261122"])
def test_what_is_no_moment_is_refused_by_name(text):
    with pytest.raises(ConfigError, match="--since"):
        parse_moment_us(text, "--since", NOW_US)


def test_a_window_ends_after_it_begins():
    assert read_window(None, None) == (None, None)
    with pytest.raises(ConfigError, match="comes after"):
        read_window("1h", "2h")


@pytest.fixture(name="folder", scope="module")
def folder_of_tables(tmp_path_factory):
    return write_tables(tables(rolling_bounce("a")), tmp_path_factory.mktemp("kept"))


def test_history_prints_what_happened_in_a_window(folder):
    def printed(*words):
        done = run("history", "--input", str(folder), "--format", "csv", *words).passed()
        return [row["timestamp"] for row in csv.DictReader(io.StringIO(done.out))]

    whole = printed()
    middle = whole[len(whole) // 2]
    assert printed("--since", middle) == whole[len(whole) // 2 :]
    assert printed("--until", middle) == whole[: len(whole) // 2 + 1]
    assert printed("--since", middle, "--until", middle) == [middle]


@pytest.mark.parametrize("command", ["doctor", "report"])
def test_a_window_narrows_what_is_examined(folder, command, tmp_path):
    out = tmp_path / "out"
    words = [command, "--input", str(folder), "-o", str(out)]
    words += ["--format", "json"] if command == "doctor" else []
    texts = []
    for window in ([], ["--since", "2000-01-01"], ["--until", "2000-01-01"]):
        assert run(*words, *window).code == 0
        texts.append(out.read_text())
    assert texts[0] == texts[1] != texts[2]


TAKES = {
    "--since": {"history", "doctor", "report", "replay", "serve"},
    "--until": {"history", "doctor", "report", "replay"},
    "--timeout": {"history", "lag", "doctor", "report", "plan", "replay", "serve", "watch", "dump"},
}


def options_of_commands() -> dict[str, dict[str, Any]]:
    """Option -> command -> its parameter, as the parser has them."""
    found: dict[str, dict[str, Any]] = {}
    for module in cli_app.COMMANDS:
        name = module.replace("_", "-")
        for one in cli_app.load(module).params:
            for option in one.opts:
                found.setdefault(option, {})[name] = one
    return found


def test_windows_and_timeouts_are_where_they_make_sense():
    known = options_of_commands()
    assert {option: set(known[option]) for option in TAKES} == TAKES


def test_an_option_means_one_thing_in_every_command():
    known = options_of_commands()
    for option in ("--input", "--output", "--all-groups", "--batch", "--group", *TAKES):
        told = {
            (one.help or "").partition(":")[0]
            for one in known[option].values()
            if one.multiple or option != "--group"  # `assign` takes one group, of a text
        }
        assert len(told) == 1, (option, told)
    for option in ("--batch", "--interval", "--timeout", "--all-groups"):
        assert len({one.default for one in known[option].values()}) == 1, option


@pytest.mark.parametrize(
    ("said", "seconds"), [("30s", 30), ("5m", 300), ("500ms", 0.5), ("PT5M", 300), (None, None)]
)
def test_the_unit_is_understood(monkeypatch, tmp_path, said, seconds):
    asked = []
    monkeypatch.setattr(LiveCluster, "check", lambda self: None)
    monkeypatch.setattr(LiveCluster, "partition_ends", lambda self, topic: {})
    monkeypatch.setattr(job, "watch", lambda *_, **more: asked.append(more["every_seconds"]))
    words = () if said is None else ("--every", said)
    done = run("watch", "-b", "127.0.0.1:1", "-o", tmp_path / "tables", "-q", *words)
    assert (done.code, asked) == (0, [seconds]), done.err
