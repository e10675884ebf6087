"""Coverage-guided fuzzing of decoders and of tables: ``python -m tests.fuzz.fuzz_wire``.

Starts from the committed corpus and from Kafka's own vectors. ``--runs`` and ``--seconds`` bound
it; the last line is JSON with the figures. ``--save`` writes the corpus back, reduced.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.wire import java_vectors
from tests.wire.test_other_protocols import ASSIGNMENTS, SUBSCRIPTIONS

FOLDER = Path(__file__).parent
MAX_SAVED_BYTES = 60_000
MAX_LENGTH = {"scalar": 2048, "batch": 320, "columns": 512, "folder": 16_384}
# The fuzzer's own tracing of comparisons keeps every NumPy array that it sees: about 20 kB for one
# execution of a batch, and nothing without it. A new process in time keeps that bounded.
PROCESS_RUNS = {"scalar": 1_000_000, "batch": 50_000, "columns": 50_000, "folder": 5_000}


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
    from tests.fuzz.folders import folder_seeds
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
    if target == "columns":
        return committed(target) + _groups()
    if target == "folder":
        return committed(target) + folder_seeds()
    numbers = {
        "subscription": (1, 3),
        "assignment": (2,),
        "sticky-user-data": (4,),
        "cooperative-sticky-user-data": (5,),
        "connect-metadata": (11,),
        "connect-assignment": (12,),
        "streams-subscription": (13,),
        "streams-assignment": (14,),
    }
    found = [b"\x00" + join(key, value) for key, value in records]
    for family in ("consumer_protocol", "sticky_user_data", "connect", "streams_user_data"):
        for vector in java_vectors.committed(family):
            for number in numbers[vector["schema"]]:
                found.append(bytes([number]) + bytes.fromhex(vector["hex"]))
    return committed(target) + found + _own_messages()


def _groups() -> list[bytes]:
    """Groups of four members, eager and cooperative, some with the user data of their kind."""
    from tests.fuzz.targets import messages_out

    from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription

    sent = [
        bytes.fromhex(v["hex"])
        for v in java_vectors.committed("consumer_protocol")
        if v["schema"] == "subscription"
    ]
    sent += [
        encode_subscription(
            Subscription(topics=("topic-1",), user_data=bytes.fromhex(v["hex"])), version
        )
        for version in (0, 1)
        for v in java_vectors.committed("sticky_user_data")
    ]
    groups = [sent[i::14] for i in range(14)]
    return [kind + messages_out(group) for group in groups for kind in (b"\x00", b"\xff")]


def _own_messages() -> list[bytes]:
    from holdfast.core.wire.layouts.container import (
        MemberAssignment,
        MemberSubscription,
        encode_member_assignment,
        encode_member_subscription,
    )
    from holdfast.core.wire.layouts.state_shard import MemberEntry, StateShard, encode_shard

    some = (("orders", (0, 3, 300)), ("clicks", (1,)))
    hashed = ((f"{5:020b}", (0, 3, 300)), (f"{99:020b}", (1, 20_000, 90_000)))
    gone = MemberEntry(identity="01" * 9 + "0", static=True, delay_ms=9, owned=hashed)
    near = MemberEntry(identity="10" * 9 + "1", owned=hashed[:1])
    leader_state = encode_shard(
        StateShard(generation=4, pace_ms=9, neighbours=(near,), waiting=(gone,))
    )
    claim = MemberSubscription(
        topics=("orders",), owned=some, already_revoked=some, leader_state=leader_state
    )
    return [
        *(b"\x06" + bytes.fromhex(text) for text in SUBSCRIPTIONS),
        *(b"\x07" + bytes.fromhex(text) for text in ASSIGNMENTS),
        b"\x08" + encode_member_subscription(claim),
        b"\x09"
        + encode_member_assignment(
            MemberAssignment(assigned=some, revoked=some, leader_state=leader_state)
        ),
        b"\x0a" + leader_state,
    ]


def main() -> None:
    """Run the fuzzer in processes of its own, so that a crash and a memory limit are theirs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", choices=list(MAX_LENGTH), help="all by default")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write the reduced corpus back")
    arguments = parser.parse_args()
    # Ended by default, this process would leave the one that fuzzes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ok = True
    for target in [arguments.target] if arguments.target else list(MAX_LENGTH):
        # Asked for all, the batch forms get a twentieth each: they do as much in one execution.
        runs = arguments.runs if arguments.target or target == "scalar" else arguments.runs // 20
        figures = _fuzz_target(target, runs, arguments)
        ok = ok and figures["ok"]
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()
    sys.exit(0 if ok else 1)


def _fuzz_target(target: str, runs: int, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder)
        for index, data in enumerate(seeds(target)):
            (corpus / f"{index:06d}").write_bytes(data)
        figures = _run(target, runs, arguments, corpus)
        if arguments.save and figures["ok"]:
            _save(target, corpus)
    return figures


def _run(target: str, runs: int, arguments: argparse.Namespace, corpus: Path) -> dict[str, Any]:
    started = time.monotonic()
    figures: dict[str, Any] = {"target": target, "executions": 0, "peak_rss_mb": 0}
    ok = True
    while ok and (left := runs - figures["executions"]) > 0:
        seconds_left = int(arguments.seconds - (time.monotonic() - started))
        if seconds_left <= 0:
            break
        code, text = _fuzz(
            target,
            str(corpus),
            f"-runs={min(left, PROCESS_RUNS[target])}",
            f"-max_total_time={seconds_left}",
            f"-seed={arguments.seed + figures['executions']}",
            f"-artifact_prefix={tempfile.gettempdir()}/fuzz-{target}-",
            f"-max_len={MAX_LENGTH[target]}",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
        )
        ok = code == 0
        stats = {name: int(n) for name, n in re.findall(r"^stat::(\w+):\s+(\d+)$", text, re.M)}
        figures["executions"] += stats.get("number_of_executed_units", 1)
        figures["peak_rss_mb"] = max(figures["peak_rss_mb"], stats.get("peak_rss_mb", 0))
        found = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
        if found:
            names = ("coverage", "features", "corpus")
            figures |= dict(zip(names, map(int, found[-1]), strict=True))
        if not ok:
            sys.stderr.write(text[-4000:])
    return figures | {"seconds": round(time.monotonic() - started, 1), "ok": ok}


def _fuzz(target: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.fuzz.fuzz_process", target, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        try:
            text, _ = child.communicate()
        except BaseException:
            child.terminate()  # it ends between two executions
            raise
    return child.returncode, text


def _save(target: str, corpus: Path) -> None:
    """Keep the inputs that found something new, short ones first, as far as they fit."""
    known = {*seeds(target)} - {*committed(target)}
    inputs = {path.read_bytes() for path in corpus.iterdir()} - known - {b""}
    lines: list[str] = []
    size = 0
    for data in sorted(inputs, key=lambda item: (len(item), item)):
        size += 2 * len(data) + 1
        if size > MAX_SAVED_BYTES:
            break
        lines.append(data.hex())
    corpus_file(target).write_text("\n".join(sorted(lines)) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
