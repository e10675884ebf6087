"""Broker logs as collectors keep them: whatever is around a line, it says the same."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.running import run
from tests.pipeline import kinds
from tests.pipeline.histories import read_statements
from tests.pipeline.test_broker_log import line, preparing

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.history.broker_log import read_logs

CAPTURED = Path(__file__).with_name("captured")
KINDS = ("share", "streams", "migrated", "streams_classic", "connect")
APACHE = re.compile(r"\[(?P<at>[^\]]*)\] (?P<level>\w+) (?P<words>.*) \((?P<logger>[\w.]+)\)")
THREAD = "data-plane-kafka-request-handler-1"


class Event(NamedTuple):
    """One event of log4j."""

    at: datetime
    level: str
    words: str
    logger: str

    @property
    def apache(self) -> str:
        return f"[{comma(self.at)}] {self.level} {self.words} ({self.logger})"

    @property
    def strimzi(self) -> str:
        return f"{comma(self.at)} {self.level} {self.words} ({self.logger}) [{THREAD}]"

    @property
    def short(self) -> str:
        return self.logger.rpartition(".")[2]


def comma(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"


def zulu(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}000000Z"


def millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def events() -> list[Event]:
    """What a real coordinator logged about groups of every kind, and other lines of a broker."""
    lines = (CAPTURED / "broker.log").read_text().splitlines()
    for kind in KINDS:
        lines += kinds.kind(kind).broker_log
    found = [match for text in lines if (match := APACHE.fullmatch(text))]
    assert len(found) == len(lines) > 300
    at = datetime(2026, 11, 22, 9, tzinfo=UTC)
    made = [Event(at, "INFO", f"Kafka version: 4.3.{n}", "kafka.utils.AppInfo") for n in range(9)]
    for match in found:
        at += timedelta(milliseconds=37)
        made.append(Event(at, match["level"], match["words"], match["logger"]))
    return made


GROUPS = ("etl", "static", "design", "next", *(kinds.kind(kind).group for kind in KINDS))
EVENTS = events()
SAME = read_statements([event.apache for event in EVENTS], GROUPS)
"""What they say in the layout that Kafka ships."""


def each(write: Callable[[Event], str]) -> Callable[[list[Event]], str]:
    """A layout with a line for each event."""
    return lambda events: "".join(f"{write(event)}\n" for event in events)


def document(write: Callable[[Event], dict]) -> Callable[[list[Event]], str]:
    """A layout with an object of JSON on a line for each event."""
    return each(lambda event: json.dumps(write(event)))


def table(header: list[str], cells: Callable[[Event], list[object]], **form):
    """A layout as CSV."""

    def write(events: list[Event]) -> str:
        text = io.StringIO()
        rows = csv.writer(text, **form)
        rows.writerows([*([header] if header else []), *map(cells, events)])
        return text.getvalue()

    return write


def newest_first(layout: Callable[[list[Event]], str]) -> Callable[[list[Event]], str]:
    return lambda events: layout(events[::-1])


def ecs(event: Event) -> dict:
    return {
        "@timestamp": zulu(event.at),
        "log.level": event.level,
        "message": event.words,
        "ecs.version": "1.2.0",
        "process.thread.name": THREAD,
        "log.logger": event.logger,
    }


def log4j(event: Event) -> dict:
    seconds, rest = divmod(millis(event.at), 1000)
    return {
        "instant": {"epochSecond": seconds, "nanoOfSecond": rest * 1_000_000},
        "thread": THREAD,
        "level": event.level,
        "loggerName": event.logger,
        "message": event.words,
        "endOfBatch": False,
    }


def filebeat(event: Event) -> dict:
    return {
        "@timestamp": zulu(event.at),
        "@metadata": {"beat": "filebeat"},
        "log": {"offset": 17, "file": {"path": "/var/log/kafka/server.log"}},
        "message": event.strimzi,
        "event": {"original": event.strimzi},
    }


def docker(event: Event) -> dict:
    return {"log": f"{event.apache}\n", "stream": "stdout", "time": zulu(event.at)}


def docker_in_parts(events: list[Event]) -> str:
    parts = [[e.apache[:90], f"{e.apache[90:]}\n"] for e in events]
    at = [zulu(event.at) for event in events]
    rows = [
        {"log": text, "time": time} for both, time in zip(parts, at, strict=True) for text in both
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def cri_in_parts(events: list[Event]) -> str:
    parts = [(zulu(e.at), e.strimzi[:70], e.strimzi[70:]) for e in events]
    return "".join(f"{at} stdout P {a}\n{at} stdout F {b}\n" for at, a, b in parts)


def with_a_start(events: list[Event]) -> str:
    """What a container prints before its first line of the layout."""
    start = "".join(f"listener.name.{n}=value {n}\n" for n in range(200))
    return start + each(lambda event: event.strimzi)(events)


def colours(event: Event) -> str:
    green, cyan, plain = "\x1b[32m", "\x1b[36m", "\x1b[m"
    head, tail = f"{comma(event.at)} {event.level}", f"({event.logger})"
    return f"{green}{head}{plain} {event.words} {cyan}{tail}{plain}"


LAYOUTS = {
    "Strimzi up to Kafka 3.9": each(lambda e: e.strimzi),
    "Strimzi since Kafka 4": each(
        lambda e: f"{comma(e.at)} {e.level:5} [{THREAD}] {e.short}:66 - {e.words}"
    ),
    "logger and line": each(lambda e: f"[{comma(e.at)}] {e.level} {e.words} ({e.logger}:66)"),
    "logger around": each(
        lambda e: (
            f"{e.at:%d %b %Y %H:%M:%S},123 [{e.level}] [{e.short}] {e.words} - {e.short} [{THREAD}]"
        )
    ),
    "GroupCoordinator as the logger": each(
        lambda e: f"{comma(e.at)} {e.level} [GroupCoordinator] {e.words}"
    ),
    "location": each(
        lambda e: f"{comma(e.at)} {e.level} {e.words} {e.logger}.info({e.short}.java:66)"
    ),
    "no more than the message": each(lambda e: e.words),
    "logger without brackets": each(lambda e: f"{comma(e.at)} {e.words} {e.logger}"),
    "colours": each(colours),
    "colours as text": each(lambda e: colours(e).replace("\x1b", "^[")),
    "syslog": each(lambda e: f"Nov 22 09:00:00 kafka-0 kafka[77]: {e.apache}"),
    "docker compose": each(lambda e: f"kafka-1  | {e.apache}"),
    "kubectl": each(lambda e: f"[pod/kafka-0/kafka] {zulu(e.at)} {e.strimzi}"),
    "a container from its start": with_a_start,
    "Docker": document(docker),
    "Docker, long lines in parts": docker_in_parts,
    "Docker around JSON": document(lambda e: docker(e) | {"log": f"{json.dumps(ecs(e))}\n"}),
    "Docker through Fluent Bit": document(lambda e: docker(e) | {"log": e.apache}),
    "CRI": each(lambda e: f"{zulu(e.at)} stdout F {e.strimzi}"),
    "CRI, long lines in parts": cri_in_parts,
    "CRI around JSON": each(lambda e: f"{zulu(e.at)} stdout F {json.dumps(log4j(e))}"),
    "kubectl around JSON": each(lambda e: f"[pod/kafka-0/kafka] {json.dumps(ecs(e))}"),
    "JsonTemplateLayout (ECS)": document(ecs),
    "JsonLayout": document(log4j),
    "JsonLayout over lines": each(lambda e: json.dumps(log4j(e), indent=2)),
    "JsonLayout, complete": lambda events: (
        "[\n" + "\n, ".join(json.dumps(log4j(e), indent=2) for e in events) + "\n]\n"
    ),
    "a list on a line": lambda events: json.dumps([{"textPayload": e.apache} for e in events]),
    "a list over lines": lambda events: json.dumps(
        [{"textPayload": e.apache, "labels": {"a": [1]}} for e in events], indent=1
    ),
    "Filebeat": document(filebeat),
    "Elasticsearch": document(lambda e: {"_id": "x", "_source": filebeat(e)}),
    "journald": document(lambda e: {"MESSAGE": e.apache, "_HOSTNAME": "kafka-0"}),
    "GELF": document(lambda e: {"short_message": e.words, "timestamp": e.at.timestamp()}),
    "CloudWatch": newest_first(table(["timestamp", "message"], lambda e: [millis(e.at), e.apache])),
    "CloudWatch Insights": newest_first(
        table(["@timestamp", "@message"], lambda e: [zulu(e.at), json.dumps(docker(e))])
    ),
    "Kibana": newest_first(
        table(
            ["@timestamp", "message", "host"],
            lambda e: [f"{e.at:%b %d, %Y @ %H:%M:%S}.{e.at.microsecond // 1000:03}", e.words, "k"],
            quoting=csv.QUOTE_ALL,
        )
    ),
    "semicolons": table(
        ["Date", "Host", "Message"], lambda e: [zulu(e.at), "k", e.apache], delimiter=";"
    ),
    "quoted cells": table([], lambda e: [comma(e.at), e.level, e.words], quoting=csv.QUOTE_ALL),
    "newest first": newest_first(each(lambda e: e.apache)),
    "JSON, newest first": newest_first(document(filebeat)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_says_what_kafkas_own_says(name):
    text = LAYOUTS[name](EVENTS)
    assert read_statements(text.splitlines(keepends=True), GROUPS) == SAME


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_of_a_few_lines_says_the_same(name):
    """Who asks for one group sends the lines of one rebalance."""
    few = [event for event in EVENTS if "group-streams-classic" in event.words][:4]
    same = read_statements([event.apache for event in few], GROUPS)
    assert same
    text = LAYOUTS[name](few)
    assert read_statements(text.splitlines(keepends=True), GROUPS) == same


@pytest.mark.parametrize(
    "encoded",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode("utf-16"),  # PowerShell
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text.encode("utf-16")),
    ],
)
@pytest.mark.parametrize("name", ["server.log", "server.log.1.gz", "any.txt"])
def test_a_file_is_read_whatever_its_bytes_and_its_name(tmp_path, encoded, name):
    file = tmp_path / name
    file.write_bytes(encoded(LAYOUTS["Strimzi up to Kafka 3.9"](EVENTS)))
    assert read_logs([file], GROUPS) == (SAME, [])


def test_logs_of_several_brokers_in_any_order_are_one_log(tmp_path):
    layouts = ("Docker", "CloudWatch", "CRI around JSON", "newest first")
    parts = [EVENTS[n::4] for n in range(4)]
    files = [tmp_path / name for name in layouts]
    for file, part in zip(files, parts, strict=True):
        file.write_text(LAYOUTS[file.name](part))
    random.Random(1).shuffle(files)
    assert read_logs(files, GROUPS)[0] == SAME


def test_a_file_that_says_nothing_or_is_cut_short_is_named(tmp_path):
    other, cut = tmp_path / "state-change.log", tmp_path / "cut.gz"
    other.write_text("[2026-11-21 15:30:51,021] INFO [Controller 1] x (state.change.logger)\n" * 9)
    cut.write_bytes(gzip.compress(LAYOUTS["Docker"](EVENTS).encode())[:-40])
    found, notes = read_logs([other, cut], GROUPS)
    assert 0 < len(found) <= len(SAME)
    assert [note.split()[0] for note in sorted(notes)] == [str(cut), str(other)]


@pytest.mark.parametrize("name", ["missing.log", "folder"])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceError, match=name):
        read_logs([tmp_path / name], GROUPS)


def test_a_command_names_a_log_that_says_nothing(tmp_path):
    log = tmp_path / "empty.log"
    log.write_text("")
    done = run("history", "--input", CAPTURED / "dump", "--broker-log", log)
    assert done.code == 0
    assert "no line of a group coordinator" in done.err and "empty.log" in done.err
    used = run("history", "--input", CAPTURED / "dump", "--broker-log", CAPTURED / "broker.log")
    assert used.code == 0 and "no line of a group coordinator" not in used.err


FAKES = (
    json.dumps({"message": "[GroupCoordinator 1]: Group h with generation 9 is now empty"}),
    '","[GroupCoordinator 1]: Group h with generation 9 is now empty","',
    "2026-11-22T09:00:00Z stdout F [GroupId h] Bumped group epoch to 9 with metadata hash 1.",
    "x (kafka.A) [GroupId h] Bumped group epoch to 9 with metadata hash 1.",
)


@pytest.mark.parametrize("fake", FAKES)
@pytest.mark.parametrize("name", ["Strimzi up to Kafka 3.9", "Docker", "ECS", "CloudWatch"])
def test_a_client_that_looks_like_an_envelope_is_text(name, fake):
    """Its reason stands at the end of a line, where no layout puts anything behind it."""
    layout = LAYOUTS.get(name, document(ecs))
    left = "[GroupCoordinator 1]: [Group g] Member m has left group through explicit `LeaveGroup` "
    left += f"request; client reason: {fake}"
    at, logger = EVENTS[0].at, "kafka.coordinator.group.GroupCoordinator"
    said = Event(at, "INFO", left, logger)
    begins = APACHE.fullmatch(preparing("g", 8, "Moon is full").strip())
    bumped = APACHE.fullmatch(line("[GroupId h] Bumped group epoch to 8.").strip())
    lines = [said, *(Event(at, "INFO", m["words"], logger) for m in (begins, bumped))]
    found = read_statements(layout(EVENTS + lines).splitlines(keepends=True), ["g", "h"])
    assert [(one.group, one.generation) for one in found] == [("h", 8), ("g", 9)]
    assert found[1].words[0].text.endswith(fake.removesuffix("."))
