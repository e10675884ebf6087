"""Topic ids in their two forms, and the partition of a group, asked of Java itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.core.wire.one.topic_ids import (
    names_by_id,
    offsets_partition,
    read_topic_id,
    string_hash,
    topic_id_text,
)
from holdfast.fleet.pipeline.ingest.decode import id_text

KNOWN = {
    "00000000-0000-0000-0000-000000000000": "AAAAAAAAAAAAAAAAAAAAAA",
    "00000000-0000-0000-0000-000000000001": "AAAAAAAAAAAAAAAAAAAAAQ",
    "ffffffff-ffff-ffff-ffff-ffffffffffff": "_____________________w",
}
"""What ``org.apache.kafka.common.Uuid.toString`` says of these."""


@pytest.mark.parametrize(("dashed", "text"), KNOWN.items())
def test_the_text_is_that_of_kafkas_tools(dashed, text):
    assert topic_id_text(UUID(dashed)) == text
    assert read_topic_id(text) == read_topic_id(dashed) == UUID(dashed)


@given(st.uuids())
def test_every_id_comes_back_from_either_form(topic_id):
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert read_topic_id(text) == read_topic_id(str(topic_id)) == topic_id


@given(st.lists(st.uuids(), max_size=5))
def test_a_column_of_ids_has_the_same_text(ids):
    data = b"".join(i.bytes for i in ids)
    column = id_text(np.frombuffer(data, np.uint8).reshape(-1, 16))
    assert column.to_pylist() == [topic_id_text(i) for i in ids]


@pytest.mark.parametrize("text", ["", "zzz", "A" * 21 + "!", "A" * 23])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError):
        read_topic_id(text)


def test_a_record_shows_its_topic_id_so_and_is_written_from_either_form():
    dashed, text = list(KNOWN.items())[1]
    key = {"group": "g", "topic": "t", "partition": 0}
    commit = {"offset": 1, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 0}
    (written,) = {
        encode_record(
            Record(
                record_type=1,
                name="",
                key=key,
                value_version=4,
                value={**commit, "topicId": form},
            )
        )
        for form in (UUID(dashed), dashed, text)
    }
    assert decode_record(*written).to_dict()["value"]["topicId"] == text


def test_names_are_found_by_either_form():
    for form in list(KNOWN.items())[1]:
        names = names_by_id([(form, "t")])
        assert [names[other] for other in list(KNOWN.items())[1]] == ["t", "t"]
    assert names_by_id([("odd", "t")]) == {"odd": "t"}


JAVA = """
import java.io.*;
import org.apache.kafka.common.utils.Utils;

public class Partition {
    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            StringBuilder name = new StringBuilder();
            for (String unit : line.split(","))
                if (!unit.isEmpty()) name.append((char) Integer.parseInt(unit, 16));
            int code = name.toString().hashCode();
            System.out.println(code + " " + Utils.abs(code) % 50 + " " + Utils.abs(code) % 7);
        }
    }
}
"""


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", 0),
        ("a", 97),
        ("polygenelubricants", -(2**31)),
        ("😀", 1_772_899),
    ],
)
def test_known_hashes(name: str, code: int) -> None:
    assert string_hash(name) == code


def test_the_number_without_an_absolute_value_counts_as_0() -> None:
    assert offsets_partition("polygenelubricants", 50) == 0


def random_names(seed: int, n: int) -> list[str]:
    rng = np.random.default_rng(seed)
    tops = rng.choice([0x7F, 0x7FF, 0xFFFF, 0x10FFFF], size=n)
    names = [
        "".join(chr(c) for c in rng.integers(0, top + 1, size=rng.integers(0, 40))) for top in tops
    ]
    return ["", "polygenelubricants", *names]


@pytest.mark.broker
def test_java_says_the_same(tmp_path: Path) -> None:
    from holdfast.local.jars import broker_jars
    from holdfast.local.java import find_java

    names = random_names(seed=1, n=3000)
    units = [name.encode("utf-16-be", "surrogatepass") for name in names]
    pairs = [zip(u[::2], u[1::2], strict=True) for u in units]
    lines = [",".join(f"{high << 8 | low:x}" for high, low in p) for p in pairs]
    source = tmp_path / "Partition.java"
    source.write_text(JAVA, encoding="ascii")
    classpath = os.pathsep.join(str(jar) for jar in broker_jars())
    command = [find_java().executable, "-Xmx256m", "-cp", classpath, source]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    )
    told = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    ours = [(string_hash(n), offsets_partition(n, 50), offsets_partition(n, 7)) for n in names]
    assert told == ours
