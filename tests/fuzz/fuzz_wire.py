"""Coverage-guided fuzzing of the wire decoders: ``python -m tests.fuzz.fuzz_wire scalar|batch``.

Starts from the committed corpus and from Kafka's own vectors. ``--runs`` and ``--seconds`` bound
it; the last line is JSON with the figures. ``--save`` writes the corpus back, reduced.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.wire import java_vectors

FOLDER = Path(__file__).parent
MAX_SAVED_BYTES = 90_000


def corpus_file(target: str) -> Path:
    """One input a line, in hex."""
    return FOLDER / f"corpus_{target}.txt"


def committed(target: str) -> list[bytes]:
    """The committed corpus."""
    path = corpus_file(target)
    if not path.exists():
        return []
    return [bytes.fromhex(line) for line in path.read_text(encoding="ascii").splitlines()]


def seeds(target: str) -> list[bytes]:
    """The committed corpus and inputs made of Kafka's own vectors."""
    from tests.fuzz.targets import join, records_out

    records = [
        (
            bytes.fromhex(v["key_hex"]),
            None if v["value_hex"] is None else bytes.fromhex(v["value_hex"]),
        )
        for v in java_vectors.committed("offsets_records")
    ]
    if target == "batch":
        groups = [records[i : i + 3] for i in range(0, len(records), 3)]
        return committed(target) + [records_out(list(group)) for group in groups]
    numbers = {
        "subscription": (1, 3),
        "assignment": (2,),
        "sticky-user-data": (4,),
        "cooperative-sticky-user-data": (5,),
        "connect-metadata": (11,),
        "connect-assignment": (12,),
    }
    found = [b"\x00" + join(key, value) for key, value in records]
    for family in ("consumer_protocol", "sticky_user_data", "connect"):
        for vector in java_vectors.committed(family):
            for number in numbers[vector["schema"]]:
                found.append(bytes([number]) + bytes.fromhex(vector["hex"]))
    return committed(target) + found + _own_messages()


def _own_messages() -> list[bytes]:
    from holdfast.wire.container import (
        Claim,
        Memory,
        Remembered,
        Verdict,
        encode_claim,
        encode_memory,
        encode_verdict,
    )
    from holdfast.wire.incremental import (
        Design,
        DesignAssignment,
        DesignSubscription,
        encode_design_assignment,
        encode_design_subscription,
    )

    some = (("orders", (0, 3, 300)), ("clicks", (1,)))
    gone = Remembered(member_id="m", instance_id="i", delay_ms=9, owned=some)
    memory = encode_memory(Memory(generation=4, delay_ms=9, members=(gone,), given_up=some))
    subscription = DesignSubscription(design=Design.DEFERRED, topics=("orders",), assigned=some)
    assignment = DesignAssignment(design=Design.INCREMENTAL, assigned=some, revoked=None)
    claim = Claim(topics=("orders",), owned=some, given_up=some, memory=memory)
    return [
        b"\x06" + encode_design_subscription(subscription),
        b"\x07" + encode_design_assignment(assignment),
        b"\x08" + encode_claim(claim),
        b"\x09" + encode_verdict(Verdict(assigned=some, revoked=some, memory=memory)),
        b"\x0a" + memory,
    ]


def main() -> None:
    """Run the fuzzer in a process of its own, so that its memory limit is its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=["scalar", "batch"])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write the reduced corpus back")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for index, data in enumerate(seeds(arguments.target)):
            (corpus / f"{index:06d}").write_bytes(data)
        started = time.monotonic()
        code, text = _fuzz(
            arguments.target,
            str(corpus),
            f"-runs={arguments.runs}",
            f"-max_total_time={arguments.seconds}",
            f"-seed={arguments.seed}",
            f"-artifact_prefix={Path.cwd()}/",
            "-max_len=2048",
            "-timeout=10",
            "-rss_limit_mb=1024",
            "-print_final_stats=1",
        )
        seconds = time.monotonic() - started
        if arguments.save and code == 0:
            _save(arguments.target, corpus, Path(folder) / "reduced")
    stats = {name: int(n) for name, n in re.findall(r"^stat::(\w+):\s+(\d+)$", text, re.M)}
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)[-1:]
    figures = {
        "target": arguments.target,
        "executions": stats.get("number_of_executed_units", 0),
        "seconds": round(seconds, 1),
        "peak_rss_mb": stats.get("peak_rss_mb", 0),
        "coverage_features_corpus": [int(n) for n in covered[0]] if covered else [],
        "ok": code == 0,
    }
    if code:
        sys.stderr.write(text[-4000:])
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.exit(code)


def _fuzz(target: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.fuzz.fuzz_process", target, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    return answer.returncode, answer.stdout + answer.stderr


def _save(target: str, corpus: Path, reduced: Path) -> None:
    reduced.mkdir()
    code, text = _fuzz(target, "-merge=1", "-max_len=2048", str(reduced), str(corpus))
    if code:
        sys.exit(text[-2000:])
    lines: list[str] = []
    size = 0
    # Short inputs first: they cover most for what they weigh.
    for path in sorted(reduced.iterdir(), key=lambda item: (item.stat().st_size, item.name)):
        line = path.read_bytes().hex()
        size += len(line) + 1
        if size > MAX_SAVED_BYTES:
            break
        lines.append(line)
    corpus_file(target).write_text("\n".join(sorted(lines)) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
