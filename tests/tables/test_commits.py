"""What a commit leaves: versions, the order of writing to the disk, and files that are spared."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.tables.test_reading import generations

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches.jobs import Job
from holdfast.fleet.tables.folder import commits
from holdfast.fleet.tables.folder.delta_log import LOG
from holdfast.fleet.tables.folder.files import BatchWriter, check_folder, files_of, remove_table
from holdfast.fleet.tables.folder.manifest import COMMITS, MANIFEST, Batch, read_manifest
from holdfast.fleet.tables.folder.snapshot import FolderSnapshot
from holdfast.fleet.tables.reading import Tables, read_tables
from holdfast.fleet.tables.storage import file_system
from holdfast.fleet.tables.storage.file_system import LocalFileSystem
from holdfast.fleet.tables.storage.paths import file_system_of


def written(root, batch, *groups):
    writer = BatchWriter(str(root), batch)
    writer.write("generations", generations(*groups))
    return Batch(id=batch, files=files_of(writer.close()))


def groups(root):
    return Tables(root).table("generations")["group"].to_pylist()


def test_commits_of_two_writers_that_wrote_side_by_side_are_both_there(tmp_path):
    """The sweep of the first spares the files of the second, and the second builds on the first."""
    first, second = written(tmp_path, 1, "a"), written(tmp_path, 2, "b")
    Tables(tmp_path).commit(first)
    Tables(tmp_path).commit(second)
    assert groups(tmp_path) == ["a", "b"]


def test_the_manifest_is_read_when_a_writer_begins_and_once_by_a_listing(tmp_path, monkeypatch):
    tables = Tables(tmp_path)
    tables.commit(written(tmp_path, 0, "a"))
    batch, read, names = written(tmp_path, 1, "b"), LocalFileSystem.read, []

    def counted(self, name):
        names.append(name)
        return read(self, name)

    monkeypatch.setattr(LocalFileSystem, "read", counted)

    def manifests():
        found = [name for name in names if name == MANIFEST or name.startswith(f"{COMMITS}/0")]
        names.clear()
        return found

    with tables.writing():
        assert manifests() == [MANIFEST]
        tables.commit(batch)
        assert manifests() == []
    assert len(tables.files("generations")) == 2
    assert manifests() == [MANIFEST]
    assert tables.rows("generations") == 2
    assert manifests() == [MANIFEST]


def test_of_two_that_pass_every_check_one_commits(tmp_path, monkeypatch):
    """The second commits between the check of the first and its creation of the version."""
    tables, create = Tables(tmp_path), LocalFileSystem.create
    before, first = tables.manifest(), written(tmp_path, 1, "a")

    def overtaken(self, name, data):
        monkeypatch.setattr(LocalFileSystem, "create", create)
        Tables(tmp_path).commit(written(tmp_path, 2, "b"), made_from=before)
        return create(self, name, data)

    with tables.writing():
        monkeypatch.setattr(LocalFileSystem, "create", overtaken)
        with pytest.raises(SourceError, match="another process has committed since"):
            tables.commit(first, made_from=before)
    assert groups(tmp_path) == ["b"]


def test_a_version_that_was_deleted_since_decides_nothing(tmp_path, monkeypatch):
    """A writer that stood still for two versions creates a name that is free again."""
    tables, create = Tables(tmp_path), LocalFileSystem.create
    tables.commit(written(tmp_path, 0, "a"))
    before = tables.manifest()

    def late(self, name, data):
        monkeypatch.setattr(LocalFileSystem, "create", create)
        for batch in (1, 2):
            tables.commit(written(tmp_path, batch, f"b{batch}"))
        return create(self, name, data)

    with tables.writing():
        late_batch = written(tmp_path, 9, "late")
        monkeypatch.setattr(LocalFileSystem, "create", late)
        with pytest.raises(SourceError, match="another process has committed"):
            tables.commit(late_batch, made_from=before)
    assert groups(tmp_path) == ["a", "b1", "b2"]
    assert read_manifest(tmp_path).version == 3


def test_a_version_counts_from_the_moment_that_it_is_decided(tmp_path, monkeypatch):
    """Killed between version and manifest: the version counts, and the next one builds on it."""
    tables = Tables(tmp_path)
    for batch, name in ((0, "a"), (1, "b")):
        with monkeypatch.context() as patch:
            patch.setattr(
                LocalFileSystem, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                tables.commit(written(tmp_path, batch, name))
        assert groups(tmp_path) == read_tables(tmp_path).stored("generations")["group"].to_pylist()
    assert groups(tmp_path) == ["a", "b"]
    assert not (tmp_path / MANIFEST).exists()
    tables.commit(written(tmp_path, 2, "c"))
    assert groups(tmp_path) == ["a", "b", "c"] and (tmp_path / MANIFEST).exists()


def test_a_full_disk_at_the_copy_of_the_manifest_undoes_no_commit(tmp_path, monkeypatch, caplog):
    """The version is decided by then: the caller hears that it counts, and readers see it."""
    Tables(tmp_path).commit(written(tmp_path, 0, "a"))

    def full(self, name, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "replace", full)
        Tables(tmp_path).commit(written(tmp_path, 1, "b"))
        assert groups(tmp_path) == ["a", "b"]
    assert "version 2 counts" in caplog.text and "No space left" in caplog.text
    Tables(tmp_path).commit(written(tmp_path, 2, "c"))
    assert groups(tmp_path) == ["a", "b", "c"]


def test_an_old_manifest_that_comes_late_does_not_count(tmp_path):
    tables = Tables(tmp_path)
    tables.commit(written(tmp_path, 0, "a"))
    old = (tmp_path / MANIFEST).read_bytes()
    tables.commit(written(tmp_path, 1, "b"))
    (tmp_path / MANIFEST).write_bytes(old)
    assert groups(tmp_path) == ["a", "b"]
    tables.commit(written(tmp_path, 2, "c"))
    assert groups(tmp_path) == ["a", "b", "c"]


def test_files_and_folders_are_on_the_disk_before_the_manifest_names_them(tmp_path, monkeypatch):
    done, sync, link, rename = [], os.fsync, Path.hardlink_to, Path.replace

    def place(path):
        return str(Path(path).relative_to(tmp_path))

    def synced(fd):
        done.append(("sync", place(Path(f"/proc/self/fd/{fd}").readlink())))
        sync(fd)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(
        Path, "hardlink_to", lambda to, at: done.append(("name", place(to))) or link(to, at)
    )
    monkeypatch.setattr(
        Path, "replace", lambda at, to: done.append(("name", place(to))) or rename(at, to)
    )
    tables = Tables(tmp_path)
    with tables.writing():
        done.clear()
        batch = written(tmp_path, 0, "a")
        ((name, _),) = batch.files["generations"]
        folders = ["generations/batch-000000000", "generations", "."]
        assert done == [("sync", path) for path in (name, *folders)]
        done.clear()
        tables.commit(batch)
    drafts = [at for at, (what, path) in enumerate(done) if what == "sync" and ".tmp" in path]
    log = f"generations/{LOG}"
    names = (f"{log}/{0:020d}.json", f"{COMMITS}/000000001.json", MANIFEST)
    entry, version, manifest = (done.index(("name", name)) for name in names)
    assert done.index(("sync", "generations")) < entry < done.index(("sync", log)) < version
    assert drafts[0] < entry and any(version < draft < manifest for draft in drafts)
    assert version < done.index(("sync", COMMITS), version) < manifest
    assert manifest < done.index(("sync", "."), manifest)


def test_a_batch_whose_file_is_gone_is_not_committed(tmp_path):
    batch = written(tmp_path, 0, "a")
    ((name, _),) = batch.files["generations"]
    (tmp_path / name).unlink()
    with pytest.raises(SourceError, match="is missing"):
        Tables(tmp_path).commit(batch)
    assert Tables(tmp_path).committed() == []


def test_a_sweep_deletes_what_is_older_than_the_commit_before(tmp_path):
    tables, died = Tables(tmp_path), written(tmp_path, 0, "died")
    ((name, _),) = died.files["generations"]
    os.utime(tmp_path / name, ns=(1, 1))
    tables.commit(written(tmp_path, 0, "a"))
    assert (tmp_path / name).exists()  # there was no commit before: it may be anybody's
    young = written(tmp_path, 1, "young")
    ((spared, _),) = young.files["generations"]
    later = (tmp_path / MANIFEST).stat().st_mtime_ns + 1
    os.utime(tmp_path / spared, ns=(later, later))
    Tables(tmp_path).commit(written(tmp_path, 1, "b"))  # the first of its process, which looks
    assert not (tmp_path / name).exists() and (tmp_path / spared).exists()
    tables.commit(young)
    assert groups(tmp_path) == ["a", "young"]


def test_what_a_writer_tidies_does_not_grow_with_its_batches(tmp_path, monkeypatch):
    """It looks where a file is due; all folders were looked through by its first commit."""
    monkeypatch.setattr(commits, "TIDY_EVERY", 1)
    looked, clear = [], file_system._clear
    monkeypatch.setattr(file_system, "_clear", lambda *a: (looked.append(a[1]), clear(*a)))
    tables, counts = Tables(tmp_path), []
    with tables.writing():
        for batch in range(6):
            looked.clear()
            tables.commit(written(tmp_path, batch, "a"))
            counts.append(len(looked))
    assert counts == [1] + [0] * 5


def outside(tmp_path, *names):
    folder = tmp_path / "home"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    return folder


HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize("link", ["table", "batch", "file"])
def test_a_sweep_follows_no_link(tmp_path, link):
    home = outside(tmp_path, f"batch-000000007/{HEX}.parquet", "batch-jobs/payroll.csv")
    root = tmp_path / "tables"
    tables = Tables(root)
    for batch in (0, 1):
        tables.commit(Batch(id=batch, files={}))
    batch = root / "lag" / "batch-000000007"
    at, to = {
        "table": (root / "lag", home),
        "batch": (batch, home / batch.name),
        "file": (batch / f"{HEX}.parquet", home / batch.name / f"{HEX}.parquet"),
    }[link]
    at.parent.mkdir(parents=True, exist_ok=True)
    if link == "table":
        at.rename(tmp_path / "away")
    at.symlink_to(to)
    before = sorted(path for path in home.rglob("*"))
    if link == "table":
        with pytest.raises(SourceError, match="is a link"):
            tables.commit(Batch(id=2, files={}))
    else:
        tables.commit(Batch(id=2, files={}))
    remove_table(root, "lag")
    file_system_of(root / "lag").remove_folder()
    assert sorted(path for path in home.rglob("*")) == before


def test_only_names_of_ours_are_deleted(tmp_path):
    tables = Tables(tmp_path)
    mine = outside(tmp_path / "lag", "thesis.txt")  # tables/lag/home
    folder = tmp_path / "lag" / "batch-000000007"
    folder.mkdir()
    for name in ("notes.parquet", f"{HEX}.txt"):
        (folder / name).write_text("mine")
    for batch in range(3):
        tables.commit(Batch(id=batch, files={}))
    assert sorted(path.name for path in folder.iterdir()) == [f"{HEX}.txt", "notes.parquet"]
    assert (mine / "thesis.txt").exists()


@pytest.mark.parametrize("link", ["generations", "generations/batch-000000000"])
def test_nothing_is_written_through_a_link(tmp_path, link):
    home, root = tmp_path / "home", tmp_path / "tables"
    home.mkdir()
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(home)
    with pytest.raises(SourceError, match="is a link"):
        written(root, 0, "a")
    assert not any(path.is_file() for path in home.rglob("*"))


@pytest.mark.parametrize("name", ["thesis.txt", "records", "dump.json", "batch-000000000", LOG])
def test_a_folder_that_holds_something_else_is_not_written_to(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with (
        pytest.raises(SourceError, match=f"it holds '{name}'|is a Delta table"),
        Tables(tmp_path).writing(),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_may_stand_in_a_folder_of_tables(tmp_path):
    for name in (".DS_Store", "lost+found", "lag", "_state"):
        (tmp_path / name).mkdir()
    check_folder(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="not a folder"):
        check_folder(tmp_path / "file")


def test_a_reader_that_meets_a_swept_file_reads_the_manifest_again(tmp_path, monkeypatch):
    """The manifest is replaced, and its files are swept, between the names and the rows."""
    root = tmp_path / "tables"
    tables = Tables(root)
    tables.commit(written(root, 0, "a"))
    old = tables.files("generations")

    def overtaken(times):
        left, files = [times], FolderSnapshot.files

        def read(self, *asked):
            found = files(self, *asked)
            if left[0]:
                left[0] -= 1
                Tables(root).commit(written(root, 0, f"b{left[0]}"), replace=True)
                for file in found:
                    file.unlink(missing_ok=True)
            return found

        monkeypatch.setattr(FolderSnapshot, "files", read)

    overtaken(1)
    assert tables.table("generations")["group"].to_pylist() == ["b0"]
    assert not old[0].exists()
    overtaken(2)
    with pytest.raises(SourceError, match="names a missing file"):
        tables.table("generations")


def test_drafts_of_writers_that_died_go_with_the_next_commit(tmp_path):
    (tmp_path / COMMITS).mkdir()
    drafts = [folder / f".{HEX}.tmp" for folder in (tmp_path, tmp_path / COMMITS)]
    young = tmp_path / COMMITS / f".{HEX[::-1]}.tmp"  # of a process that writes it now
    for draft in (*drafts, tmp_path / ".notes.tmp", young):
        draft.write_text("half")
        if draft != young:
            os.utime(draft, (1, 1))
    Tables(tmp_path).commit(Batch(id=0, files={}))
    assert not any(draft.exists() for draft in drafts)
    assert (tmp_path / ".notes.tmp").read_text() == young.read_text() == "half"


def test_a_draft_that_was_deleted_is_no_success(tmp_path, monkeypatch):
    link = Path.hardlink_to
    monkeypatch.setattr(
        Path, "hardlink_to", lambda path, draft: draft.unlink() or link(path, draft)
    )
    assert not LocalFileSystem(tmp_path).create("name", b"text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("link", ["table", "batch", "file"])
def test_committed_tables_are_not_read_through_links(tmp_path, link):
    """Not by a job, and not by what reads one table, or all of them."""
    root, home = tmp_path / "tables", tmp_path / "home"
    tables = Tables(root)
    tables.commit(written(root, 0, "a"))
    (file,) = tables.files("generations")
    at = {"table": file.parent.parent, "batch": file.parent, "file": file}[link]
    at.rename(home)
    at.symlink_to(home)
    job = Job(session=None, tables=tables, batch=1)
    named = [(str(file.relative_to(root)), 1)]
    for read in (
        lambda: tables.files("generations"),
        lambda: tables.table("generations"),
        lambda: read_tables(root),
        lambda: job._tables(named),
        lambda: job._input(named, "generations"),
    ):
        with pytest.raises(SourceError, match="is a link"):
            read()
