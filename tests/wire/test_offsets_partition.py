"""The partition of a group: Java's hash and Kafka's absolute value, asked of Java itself."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.wire.one.topic_ids import offsets_partition, string_hash

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
