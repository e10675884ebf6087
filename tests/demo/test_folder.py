"""The demo's folders: it deletes what it has made itself, and nothing else."""

from __future__ import annotations

import pytest

from holdfast.cli.demo.run import MARK, PARTS, make_room
from holdfast.errors import ConfigError


def test_a_second_demo_starts_with_empty_folders(tmp_path):
    for _ in range(2):
        make_room(tmp_path / "bounce")
        for part in PARTS:
            folder = tmp_path / "bounce" / part
            assert [path.name for path in folder.iterdir()] == [MARK]
            (folder / "kept").write_text("by the first demo")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_what_the_demo_did_not_make_stays(tmp_path, part, kind):
    make_room(tmp_path)
    for other in PARTS:
        (tmp_path / other / "mine").write_text("of the demo before")
    home = tmp_path / "home"
    home.mkdir()
    for name in ("rebalances", MARK):
        (home / name).write_text("mine")
    folder = tmp_path / part
    folder.rename(tmp_path / "away")
    if kind == "folder":
        folder.mkdir()
        (folder / "rebalances").write_text("mine")
    elif kind == "link":
        folder.symlink_to(home)
    else:
        folder.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((ConfigError, NotADirectoryError)):
        make_room(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_demo_onto_tables_of_somebody_else_says_so(tmp_path):
    from tests.cli.running import run

    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "_manifest.json").write_text("{}")
    ended = run("demo", "-o", str(tmp_path))
    assert ended.code == 2 and "is not of an earlier demo" in ended.err
    assert (tmp_path / "tables" / "_manifest.json").read_text() == "{}"
