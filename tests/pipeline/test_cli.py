"""The commands on bad input: one clear line, and the exit code that was promised. No Spark."""

from __future__ import annotations

import pytest
from tests.pipeline import fleet

from holdfast.cli.app import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


@pytest.mark.parametrize("command", [["history"], ["lag"], ["plan", "--assignor", "sticky"]])
def test_a_folder_that_is_no_dump(capsys, tmp_path, command):
    code, out, err = run(capsys, *command, "--input", str(tmp_path))
    assert (code, out) == (3, "") and err.startswith("error: ") and err.count("\n") == 1
    assert "not a dump" in err


def test_a_topic_that_holds_records_and_a_dump_that_holds_none(capsys, tmp_path):
    fleet.write_dump(tmp_path / "d", [], offsets=[("__consumer_offsets", 0, 0, 5)])
    code, out, err = run(capsys, "history", "--input", str(tmp_path / "d"))
    assert (code, out) == (3, "") and "holds up to 5" in err and err.count("\n") == 1


def test_a_table_that_does_not_exist(capsys, tmp_path):
    code, _, err = run(capsys, "history", "--input", str(tmp_path), "--table", "movement")
    assert code == 2 and "did you mean movements?" in err


def test_no_source_and_two_sources(capsys, tmp_path):
    assert run(capsys, "history")[0] == 2
    assert run(capsys, "lag", "-b", "x:1", "--input", str(tmp_path))[0] == 2


def test_an_option_that_does_not_exist(capsys, tmp_path):
    plan = ["plan", "--assignor", "lag-sticky", "--input", str(tmp_path), "--option"]
    code, out, err = run(capsys, *plan, "max_move=3")
    assert (code, out) == (2, "") and "did you mean max_moves" in err
    assert run(capsys, *plan, "max_moves")[0] == 2


def test_an_assignor_that_does_not_exist(capsys, tmp_path):
    code, _, err = run(capsys, "plan", "--assignor", "stiky", "--input", str(tmp_path))
    assert code == 2 and "sticky" in err
