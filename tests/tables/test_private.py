"""What a command writes is its user's alone, unless it was there before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import run, write_tables
from tests.report.fleet import rolling_bounce, tables

from holdfast.fleet.tables.storage.file_system import (
    LocalFileSystem,
    make_private_folder,
    open_private,
    write_private,
)


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_files_and_folders_are_their_owners(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    write_private(tmp_path / "a" / "b" / "f", "x\n")
    modes = [mode(tmp_path / name) for name in ("a", "a/b", "a/b/f")]
    assert modes == [0o700, 0o700, 0o600]


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    folder, file = tmp_path / "a", tmp_path / "a" / "f"
    folder.mkdir(mode=0o755)
    file.write_text("old")
    file.chmod(0o644)
    make_private_folder(folder)
    write_private(file, "new")
    assert (mode(folder), mode(file), file.read_text()) == (0o755, 0o644, "new")
    with open_private(file, "a") as more:
        more.write("er")
    assert file.read_text() == "newer"


def test_a_file_instead_of_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "f")


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "--input", "{t}", "-o", "{out}", "-q"),
        ("doctor", "--input", "{t}", "-o", "{out}", "-q"),
        ("doctor", "--input", "{t}", "--format", "json", "-o", "{out}", "-q"),
        ("explain", "HF104", "-o", "{out}"),
        ("explain", "--format", "csv", "-o", "{out}"),
        ("config", "show", "-o", "{out}"),
    ],
)
def test_output_of_commands_is_the_users(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "t").mkdir()
    folder = write_tables(tables(rolling_bounce()), tmp_path / "t")
    out = tmp_path / "out"
    assert run(*(a.format(t=folder, out=out) for a in arguments)).code == 0
    assert mode(out) == 0o600


def test_what_a_file_system_writes_is_the_users(tmp_path: Path) -> None:
    LocalFileSystem(tmp_path / "new").replace("name", b"data")
    assert (mode(tmp_path / "new"), mode(tmp_path / "new" / "name")) == (0o700, 0o600)
