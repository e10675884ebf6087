"""Files that nobody names, in a folder of tables."""

from __future__ import annotations

import json

from holdfast.fleet.tables.columns.names import batch_folder
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.places import StorePath, place_of


def orphans(out):
    """Files of batches before the newest one that no version of a table has ever named."""
    root = place_of(str(out))
    newest = batch_folder(Tables(root).next_batch() - 1)
    if isinstance(root, StorePath):
        files = [file for file, _ in root.files_below()]
    else:
        files = [file for file in root.rglob("*") if file.is_file()]
    logs = [file.read_text() for file in files if file.name.endswith(".json")]
    entries = [json.loads(line) for log in logs for line in log.splitlines() if '"add"' in line]
    named = {entry["add"]["path"].rpartition("/")[2] for entry in entries}
    assert named, "no entry names a file"
    found = [f for f in files if f.name.endswith(".parquet") and f.parent.name != newest]
    tables = {file for file in found if file.parent.parent.name in TABLES}
    return {str(file) for file in tables if file.name not in named}
