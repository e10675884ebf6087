"""Records with any value in any field, at any place and time: every command reads the rest."""

from __future__ import annotations

import json
import random
import urllib.request
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.cli.running import run as cli
from tests.pipeline import fleet
from tests.report.served import following, serving

from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import (
    RECORD_SCHEMAS,
    SIZES,
    Kind,
    layout,
    schema_layout,
)
from holdfast.fleet.tables.columns.schemas import FIRST_US, LAST_US
from holdfast.fleet.tables.reading import Tables

N_RECORDS = 80
START_US = 1_767_000_000_000_000
GROUPS = ("g", "", "h\x00", "\u202eg", "x" * 32_767, "e\u0301\U0001f600")
TOPICS = ("t", "", "t\x00\n", "t" * 32_767, "__consumer_offsets", "\ufffe")
MEMBERS = ("m-1", "m-2", "", "m\x00")
TEXTS = ("", "a", "\x00", "\ud7ff", "a" * 30_000, "[ab", "0", "1_2", "-1")
WORDS = {
    "memberId": MEMBERS,
    "leader": MEMBERS,
    "protocolType": ("consumer", "consumer", "connect", "", "sr", "\x00"),
    "protocol": ("range", "cooperative-sticky", "holdfast-deferred", "stream", "", "default"),
}
NUMBERS = ((), (0,), (0, 1), (1, 2), (0, 0), (-1,), (2**31 - 1,), (-(2**31), 0))
IDS = (UUID(int=0), *map(fleet.topic_id, TOPICS), UUID(int=2**128 - 1))
TIMES = (None, -1, 0, 2**63 - 1, -(2**63), FIRST_US, FIRST_US - 1, LAST_US, LAST_US + 1)
TYPES = (1, 1, 1, 2, 2, 2, *RECORD_SCHEMAS)


class Drawn:
    """Values of records, most of them such that the records tell of the same groups."""

    def __init__(self, chance):
        self.chance = chance
        self.pick = chance.choice

    def rarely(self):
        return self.chance.random() < 0.05

    def number(self, bits):
        end = 1 << bits - 1
        return self.pick(
            [0, 0, 1, 1, 2, 3, -1, -2, -end, end - 1, self.chance.randrange(-end, end)]
        )

    def owned(self):
        return tuple((self.pick(TOPICS), self.pick(NUMBERS)) for _ in range(self.pick([0, 1, 2])))

    def message(self, name):
        version = self.pick(range(4))
        if name == "assignment":
            message = AssignmentMessage(version=version, partitions=self.owned(), user_data=None)
            data = encode_assignment(message)
        else:
            data = encode_subscription(
                Subscription(
                    version=version,
                    topics=("a", "t"),
                    user_data=self.pick([None, b"", b"x"]),
                    owned=self.owned() if version else (),
                    generation=self.number(32) if version > 1 else -1,
                    rack=self.pick([None, "r"]) if version > 2 else None,
                )
            )
        return data[: self.chance.randrange(len(data))] if self.rarely() else data

    def text(self, name):
        if name in ("group", "groupId"):
            return self.pick(("g", "g", *GROUPS))
        return self.pick(TOPICS if "opic" in name else WORDS.get(name, TEXTS))

    def one(self, field, version, flexible):
        match field.kind:
            case Kind.UINT16:
                return self.pick([0, 65_535])
            case Kind.UUID:
                return self.pick(IDS)
            case Kind.STRING:
                return self.text(field.name)
            case Kind.BYTES:
                return self.message(field.name)
            case Kind.STRUCT:
                return self.struct(layout(field.fields, version, flexible), version)
            case kind:
                return self.number(8 * SIZES[kind])

    def value(self, field, version, flexible):
        if field.is_array and field.name == "partitions":
            return self.pick(NUMBERS)
        if field.is_array:
            return tuple(self.one(field, version, flexible) for _ in range(self.pick([0, 1, 1, 2])))
        if field.nullable and self.chance.random() < 0.3:
            return None
        return self.one(field, version, flexible)

    def struct(self, here, version):
        fields = (*here.plain, *here.tagged)
        return {one.name: self.value(one, version, here.flexible) for one in fields}

    def pair(self):
        """A key and a value."""
        schemas = RECORD_SCHEMAS[self.pick(TYPES)]
        version = None if self.rarely() else self.pick(range(schemas.value.max_version + 1))
        key = self.struct(schema_layout(schemas.key, 0), 0)
        value = None
        if version is not None:
            value = self.struct(schema_layout(schemas.value, version), version)
        record = Record(
            record_type=schemas.record_type,
            name=schemas.name,
            key=key,
            value_version=version,
            value=value,
        )
        key, value = encode_record(record)
        key = self.pick([None, b"", b"\0", key + b"x"]) if self.rarely() else key
        return key, (self.pick([b"", b"\0", (value or b"") + b"x"]) if self.rarely() else value)

    def share_pair(self):
        """The same of a share group's state."""
        group = self.text("group").encode()
        place = self.pick(IDS).bytes + self.number(32).to_bytes(4, "big", signed=True)
        start = self.number(64).to_bytes(8, "big", signed=True)
        key = bytes(2) + len(group).to_bytes(2, "big") + group + place
        return key, bytes(14) + start + bytes(16) + b"\x01\x00"

    def rows(self, n, pair):
        """Rows of ``records``: most in the order of a log, and some anywhere."""
        for at in range(n):
            partition = self.pick([-1, None, 2**31 - 1]) if self.rarely() else 0
            offset = self.pick([-1, None, 2**63 - 1, 0]) if self.rarely() else at
            time = self.pick(TIMES) if self.rarely() else START_US + at * self.pick([0, 1, 10**6])
            yield partition, offset, time, *pair()


def drawn_dump(folder, drawn):
    records = list(drawn.rows(N_RECORDS, drawn.pair))
    fleet.write_part(folder, "records", records)
    fleet.write_part(folder, "share_state", list(drawn.rows(8, drawn.share_pair)))
    topics = [(str(fleet.topic_id(t)), t, drawn.pick([0, 1, 3])) for t in TOPICS]
    fleet.write_part(folder, "topics", topics)
    places = [(drawn.pick(TOPICS), drawn.pick([0, 1, -1, 2**31 - 1])) for _ in range(6)]
    fleet.write_part(folder, "offsets", [(*p, drawn.number(64), drawn.number(64)) for p in places])
    about = {"schema_version": 1, "cluster_id": "c", "taken_at": "2026-01-01T00:00:00Z"}
    (folder / "dump.json").write_text(json.dumps(about))
    return records


def asked(*arguments):
    done = cli(*arguments, "-q")
    assert done.code in (0, 1), (arguments, done.err)


@pytest.mark.every
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2**32 - 1))
@example(33)  # a rebalance in the year 10,000
def test_whatever_records_say_every_command_reads_them(tmp_path_factory, seed):
    base = tmp_path_factory.mktemp("any")
    dump, tables = base / "dump", base / "tables"
    records = drawn_dump(dump, Drawn(random.Random(seed)))
    asked("history", "--input", dump, "-o", tables)
    asked("lag", "--input", dump, "--format", "json")
    for source in (dump, tables):
        asked("doctor", "--input", source, "--group", "*")
        asked("report", "--input", source, "-o", base / "report.html")
    asked("doctor", "--input", dump, "--format", "json")
    said = []
    with following(tables, said) as served, serving(served) as url:
        for page in ("/", "/metrics", "/state"):
            with urllib.request.urlopen(url + page, timeout=30) as answer:
                assert answer.status == 200
    assert said == []
    rows = Tables(tables).table("bad_records").to_pylist()
    commits = Tables(tables).table("offset_commits").to_pylist()
    seen = [(row["log_partition"], row["log_offset"]) for row in (*rows, *commits)]
    of_commits = {(p, o) for p, o, _, key, _ in records if key and key[:2] in (b"\0\0", b"\0\1")}
    assert of_commits <= set(seen)
