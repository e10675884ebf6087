"""Files and folders that only their owner can read: a command's output belongs to its user.

**Rules.** A new file has mode 0600 and a new folder 0700, whatever the umask of the process lets
others read; a stricter umask stays. Existing files keep their modes, which their owner chose.

**Strategy.** The mode is given to the system call that creates, so no moment and no thread sees a
wider one, and the umask of the process is never changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_private(path: Path, mode: str = "w") -> Any:
    """Open a file for writing, as UTF-8 where it is text; a new one is the owner's alone."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, opener=_opener)


def write_private(path: Path, text: str) -> None:
    """Write a text file; a new one is the owner's alone."""
    with open_private(path) as file:
        file.write(text)


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents for the owner alone; an existing one stays."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
