"""The wheel and the sdist of a tree, as ``make dist`` builds them, and where to install them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
ENDS = {"wheel": ".whl", "sdist": ".tar.gz"}


def built(kind: str, folder: Path, *, tree: Path = ROOT) -> Path:
    """Build a ``wheel`` or an ``sdist`` of a tree into a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (made,) = folder.glob(f"*{ENDS[kind]}")
    return made


def environment(home: Path, packages: Iterable[str]) -> Path:
    """Make a virtual environment with these requirements alone; its Python."""
    uv = str(Path(sys.executable).parent / "uv")
    for words in (
        ["venv", "-q", "--python", sys.executable, str(home)],
        ["pip", "install", "-q", "--python", str(home), *packages],
    ):
        done = subprocess.run([uv, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return home / "bin" / "python"


def install_lines() -> dict[str, str]:
    """Extras -> the line of docs/install.md that installs them; "" is the wheel without any."""
    block = INSTALL.split("```sh\n")[1].split("```")[0]
    found = [re.split(r" +#", line)[0].strip() for line in block.splitlines()]
    lines = [line for line in found if line.startswith("pip install ")]
    extras = [re.fullmatch(r"pip install '[^\[']+(?:\[([a-z,]+)\])?'", line) for line in lines]
    return {(match and match[1]) or "": line for match, line in zip(extras, lines, strict=True)}
