"""docs/cli.md says what the command line does: exit codes and metrics."""

import re
from pathlib import Path

from holdfast.cli import app as cli_app
from holdfast.fleet.report.metrics import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_exit_code_is_described() -> None:
    codes = {v for name, v in vars(cli_app).items() if name.startswith("EXIT_")}
    assert {int(n) for n in re.findall(r"^\| (\d+) \|", PAGE, re.M)} == {0, *codes}


def test_every_metric_is_listed_with_its_labels() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ([^|]*) \| (.*) \|$", PAGE, re.M)
    assert listed == [(m.name, ", ".join(m.labels), m.text) for m in METRICS.values()]
