"""Suggestions for an option or a word that a command does not have.

**Rules.** Similar spelling alone gives no suggestion: ``--port`` is not a misspelt ``--input``. A
word that another command, Kafka's tools or a Kafka client has for the same thing leads to the
option of this command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click

SAME: Final = {
    "port": ("--port", "--listen"),
    "p": ("--port", "--listen"),
    "host": ("--listen", "--bootstrap-server"),
    "address": ("--listen", "--bootstrap-server"),
    "listen": ("--listen", "--port"),
    **dict.fromkeys(
        ("bootstrap", "bootstrap-servers", "broker", "broker-list", "server"),
        ("--bootstrap-server",),
    ),
    "brokers": ("--brokers", "--bootstrap-server"),
    "zookeeper": ("--bootstrap-server",),
    **dict.fromkeys(("config", "consumer.config", "properties"), ("--command-config",)),
    **dict.fromkeys(("consumer-group", "group-id", "groups", "g"), ("--group",)),
    **dict.fromkeys(("topics", "t"), ("--topic",)),
    **dict.fromkeys(("strategy", "partition-assignment-strategy"), ("--assignor", "--from")),
    **dict.fromkeys(("tables", "dump", "folder", "file", "i"), ("--input", "--output")),
    **dict.fromkeys(("out", "o"), ("--output",)),
    **dict.fromkeys(("json", "csv", "jsonl"), ("--format",)),
    **dict.fromkeys(("interval", "watch", "follow"), ("--every", "--interval")),
    "all": ("--all-groups",),
}
"""What people type -> options that mean the same; the first one that a command has counts."""

_NEAR: Final = 0.7
_SERVERS: Final = re.compile(r"[\w.\-\[\]]+:\d+(,[\w.\-\[\]]+:\d+)*")


def refused_option(typed: str, flags: Iterable[str], context: click.Context) -> click.UsageError:
    """Return the error about an unknown option, with its likely meaning."""
    known = {flag.lstrip("-"): flag for flag in flags if flag.startswith("--")}
    word = typed.lstrip("-")
    same = [flag for flag in SAME.get(word, ()) if flag.lstrip("-") in known][:1]
    meant = same or [known[name] for name in get_close_matches(word, known, 3, _NEAR)]
    hint = f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""
    return click.NoSuchOption(typed, f"No such option {typed!r}.{hint}", ctx=context)


def refused_words(
    words: Sequence[str], flags: Sequence[str], context: click.Context
) -> click.UsageError:
    """Return the error about words without an option, with an option for the first of them."""
    meant = " or ".join(f"{flag} {words[0]}" for flag in _flags_of(words[0], flags))
    hint = f": did you mean {meant}?" if meant else ""
    noun = "argument" if len(words) == 1 else "arguments"
    return click.UsageError(f"Got unexpected extra {noun} ({' '.join(words)}){hint}", context)


def _flags_of(word: str, flags: Sequence[str]) -> list[str]:
    """Return options of a command that a word without an option may belong to."""
    if word.isdigit():
        meant = ["--port"]
    elif _SERVERS.fullmatch(word):
        meant = ["-b"]
    elif Path(word).exists() or "/" in word:
        meant = ["--input"]
    else:
        meant = ["-b", "--input"]
    return [flag for flag in meant if flag in flags]
