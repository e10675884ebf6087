"""Texts that Java classes log, as the JDK's ``javap`` shows them.

**Strategy.** A call of a logger begins with the field that holds it; the first string loaded after
that is the text, and the method called at last is the level.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from tests.local.programs import java

LOGGER = "org/slf4j/Logger"
JAVAP = "jdk.jdeps/com.sun.tools.javap.Main"
CONSTANT = re.compile(r"^ +#\d+ = String +#\d+ +// (.*)$", re.M)
STEP = re.compile(
    rf"^ +Code:$|get(?:field|static) .*// Field .*:L{LOGGER};$|ldc.*// String (?P<text>.*)$|"
    rf"// InterfaceMethod {LOGGER}\.(?P<level>\w+):",
    re.M,
)


def classes(jar: Path, folder: str, having: str) -> str:
    """What ``javap`` shows of the classes of a jar that are in a folder and have a word in them."""
    with ZipFile(jar) as packed:
        names = [name for name in packed.namelist() if folder in name and name.endswith(".class")]
        found = [name[:-6] for name in names if having.encode() in packed.read(name)]
    if not found:
        return ""
    command = java(str(jar), "-m", JAVAP, "-v", "-p", "-cp", str(jar), *found)
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def constants(shown: str) -> set[str]:
    """All constants that are strings."""
    return set(map(_plain, CONSTANT.findall(shown)))


def logged(shown: str) -> Iterator[tuple[str, str]]:
    """Level and text of each call of a logger."""
    text = None
    for step in STEP.finditer(shown):
        if step["level"] and text is not None:
            yield step["level"], _plain(text)
            text = None
        elif step["text"] is None:
            text = None
        elif text is None:
            text = step["text"]


def _plain(text: str) -> str:
    return text.encode("ascii").decode("unicode_escape")
