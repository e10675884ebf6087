"""Files that nobody names, in a folder of tables."""

from __future__ import annotations

import json

from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.files import batch_folder
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.paths import file_system_of, storage_path


def orphans(out):
    """Files of batches before the newest one that no version of a table has ever named."""
    root = storage_path(str(out))
    newest = batch_folder(Tables(root).next_batch() - 1)
    fs = file_system_of(root)
    files = [name for name, _ in fs.files_below()]
    logs = [fs.read(name) for name in files if name.endswith(".json")]
    entries = [json.loads(line) for log in logs for line in log.splitlines() if b'"add"' in line]
    named = {entry["add"]["path"].rpartition("/")[2] for entry in entries}
    assert named, "no entry names a file"
    parts = [name.split("/") for name in files if name.endswith(".parquet")]
    return {
        "/".join(part)
        for part in parts
        if len(part) == 3 and part[0] in TABLES and part[1] != newest and part[2] not in named
    }
