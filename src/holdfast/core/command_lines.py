"""Command lines that a finding, an error or a note suggests to a person.

**Rules.** Every command line that the program suggests is made here, and nowhere else is one
written into a text. Each word is quoted, so that the line can be pasted into a shell. A line names
the source that the person gave. Where that is not known, and where the person has to choose, the
line has a word in capitals instead: ``HOST:PORT``, ``DUMP``, ``DIR``, ``CLIENT``; or the names that
the person chooses from, with ``|`` between them.

**Strategy.** :func:`holdfast_line` writes a holdfast command and :func:`kafka_line` one of Kafka's
tools. ``tests/cli/test_suggestions.py`` knows every call of the two, provokes it, and runs the line
that it has made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from holdfast.core.names import Visible, harmless, shell_word

SERVERS = "HOST:PORT"
"""Placeholder for the brokers of a cluster."""
CLIENT = "CLIENT"
"""Placeholder for the client library of a group's members."""
DUMP = "DUMP"
"""Placeholder for tables or a dump."""
FOLDER = "DIR"
"""Placeholder for a folder that the person chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSource:
    """The source that a command was given: tables, a dump or a cluster."""

    path: str = ""  # ``--input``; empty where there is none
    servers: str = ""  # ``--bootstrap-server``; empty where there is none
    command_config: str = ""  # ``--command-config``, which goes with ``servers``

    @property
    def options(self) -> tuple[str, ...]:
        """Options by which a holdfast command reads the same source."""
        if not self.servers:
            return option("--input", self.path or DUMP)
        return (*option("-b", self.servers), *self._login())

    @property
    def tool_options(self) -> tuple[str, ...]:
        """Options by which a Kafka tool queries the cluster of the source."""
        return (*option("--bootstrap-server", self.servers or SERVERS), *self._login())

    def _login(self) -> tuple[str, ...]:
        return option("--command-config", self.command_config) if self.command_config else ()


NOT_KNOWN = GivenSource()
"""An unnamed source: ``--input DUMP``, and ``HOST:PORT`` for a cluster."""


def holdfast_line(command: str, *words: str) -> Visible:
    """Return a holdfast command line, such as ``holdfast lag -b HOST:PORT --group 'my group'``."""
    return _line("holdfast", command, *words)


def kafka_line(tool: str, source: GivenSource, *words: str) -> Visible:
    """Return a command line of a Kafka tool, such as ``kafka-consumer-groups.sh``."""
    return _line(tool, *source.tool_options, *words)


def with_source(line: str, source: GivenSource) -> Visible:
    """Return a line that was made for an unnamed source, for a named one.

    The options of a source come first in a line, so a name that looks like them stays.
    """
    if source == NOT_KNOWN:
        return Visible(line)
    for is_ours in (True, False):
        unnamed, named = (_options_text(one, is_ours=is_ours) for one in (NOT_KNOWN, source))
        begin, found, rest = line.partition(unnamed)
        if found and len(begin.split()) == (2 if is_ours else 1):
            return Visible(f"{begin}{harmless(named)}{rest}")
    return Visible(line)


@lru_cache(maxsize=8)
def _options_text(source: GivenSource, *, is_ours: bool) -> str:
    """Return the options of a source in a line of holdfast or of a Kafka tool."""
    return " ".join(map(shell_word, source.options if is_ours else source.tool_options))


def option(flag: str, value: str) -> tuple[str, ...]:
    """Return an option and its value, in one word if the value looks like an option itself."""
    return (f"{flag}={value}",) if value.startswith("-") else (flag, value)


def _line(*words: str) -> Visible:
    return harmless(" ".join(map(shell_word, words)))
