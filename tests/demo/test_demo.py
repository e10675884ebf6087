"""The main job end to end, small: a bounce on a real broker, tables, and a page in a browser."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

MEMBERS, PARTITIONS = 2, 4


def holdfast(*arguments: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.browser
def test_end_to_end(tmp_path):
    from holdfast.pipeline.storage import Tables

    out = tmp_path / "out"
    sizes = ("--members", str(MEMBERS), "--partitions", str(PARTITIONS), "--seconds", "0.5")
    answer = holdfast("demo", *sizes, "-o", str(out), "--format", "json")
    assert answer.returncode == 0, answer.stderr
    assert "Traceback" not in answer.stderr
    for stage in ("start a broker", "bounce member 2 of 2", "write the report"):
        assert stage in answer.stderr
    summary = json.loads(answer.stdout)
    check_records(summary)
    tables = Tables(out / "tables")
    check_generations(summary, tables)
    check_assignments(tables)
    check_report(out / "report.html")


def check_records(summary) -> None:
    records = summary["records"]
    assert records["produced"] > 0
    assert records["produced"] == records["consumed"] + records["unread"]
    assert records["read_twice"] == 0
    assert len(summary["unowned_seconds"]) == PARTITIONS
    assert 0 <= sum(summary["unowned_seconds"]) < summary["bounce_seconds"] * PARTITIONS
    assert summary["pause_lower_seconds"] <= summary["pause_upper_seconds"]
    assert summary["bad_records"] == 0


def check_generations(summary, tables) -> None:
    """The bounce as the broker saw it: everybody left once and came back."""
    rows = [row for row in summary["generations"] if row["n_members"] > 0]
    sizes = [row["n_members"] for row in rows]
    assert max(sizes) == MEMBERS
    dips = sum(a == MEMBERS and b < MEMBERS for a, b in pairwise(sizes))
    assert dips >= MEMBERS
    numbers = [row["generation"] for row in rows]
    assert numbers == sorted(set(numbers))
    for row in rows:
        assert row["n_moved"] + row["n_kept"] + row["n_gained"] <= PARTITIONS
    protocols = set(tables.table("generations").column("protocol").to_pylist()) - {None}
    assert protocols == {"cooperative-sticky"}
    assert tables.table("offset_commits").num_rows == summary["commits"] > 0
    kinds = set(tables.table("movements").column("kind").to_pylist())
    assert kinds <= {"moved", "moved_through_gap", "gained", "lost"}
    assert "gained" in kinds


def check_assignments(tables) -> None:
    """No generation gives one partition to two members."""
    rows = tables.table("assignments").to_pylist()
    assert rows
    keys = [(row["group"], row["generation"], row["topic"], row["partition"]) for row in rows]
    assert len(keys) == len(set(keys))
    assert {key[3] for key in keys} == set(range(PARTITIONS))


def check_report(report: Path) -> None:
    """One self-contained page that draws without asking anybody and without an error."""
    from tests.report.browser import Opened, browser

    with browser() as started:
        opened = Opened(started, report.absolute())  # returns after the first drawing
        assert opened.page.locator("#canvas").count() == 1
        assert "holdfast-demo" in opened.page.locator("body").inner_text()
        opened.close()
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--members", "1"), "members: 2 to 12"),
        (("--members", "13"), "members: 2 to 12"),
        (("--rate", "0"), "rate: above 0"),
        (("--seconds", "-1"), "seconds: 0 to 600"),
    ],
)
def test_sizes_that_make_no_demo_are_refused(arguments, word):
    answer = holdfast("demo", *arguments)
    assert answer.returncode == 2
    assert word in answer.stderr
    assert answer.stderr.count("\n") == 1
