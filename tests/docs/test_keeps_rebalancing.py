"""The screens of docs/keeps-rebalancing.md are what the doctor prints, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.running import run
from tests.report.captured.capture_disturbed import looks

from holdfast.fleet.analysis.findings.examination import all_rules

PAGE = (Path(__file__).parents[2] / "docs" / "keeps-rebalancing.md").read_text(encoding="utf-8")


def test_the_screen_is_what_the_doctor_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the group that the page describes: four eager members, restarted one after the other."""
    monkeypatch.delattr("holdfast.fleet.pipeline.session.open_session")  # Spark has nothing to do
    (screen,) = re.findall(r"^```\n(group\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    sizes = ("--members", "4", "--partitions", "12")
    assert run("simulate", "--policy", "eager", *sizes, "--dump", tmp_path / "dump", "-q").code == 0
    printed = run("doctor", "--input", tmp_path / "dump", "-q").out
    pattern = ".*".join(re.escape(part.strip()) for part in screen.split("..."))
    assert re.search(pattern, re.sub(r" +$", "", printed, flags=re.MULTILINE), re.DOTALL), printed


@pytest.mark.parametrize(
    "group", ["slow-confluent-20-beside-2", "crash-kill-9", "statefulset-range", "deployment-range"]
)
def test_the_four_that_look_alike_are_distinguished_as_shown(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each screen is the begin of what the doctor prints of a group that lived on a broker."""
    monkeypatch.delattr("holdfast.fleet.pipeline.session.open_session")
    (screen,) = re.findall(rf"^```\n({group}\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (look,) = [one for one in looks() if one.is_last and one.group == group]
    printed = run("doctor", "--input", look.dump(tmp_path / "dump"), "-q", width=500).out
    before = printed[: printed.index("HF")].count("\n")
    assert before == 3, printed  # what is shown comes first
    pattern = ".*?".join(re.escape(part.strip()) for part in screen.split("..."))
    assert re.match(pattern, re.sub(r" +$", "", printed, flags=re.MULTILINE), re.DOTALL), printed


def test_the_commonest_findings_are_findings_with_their_names() -> None:
    names = {rule.code: rule.name for rule in all_rules()}
    rows = re.findall(r"^\| \[(HF\d+)\]\(doctor\.md#[\w-]+\) ([\w -]+?) \|", PAGE, re.MULTILINE)
    assert len(rows) == 6
    assert {code: names[code] for code, _ in rows} == dict(rows)
