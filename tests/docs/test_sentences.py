"""The sentences of docstrings, help, error texts and pages for users: short, with a subject.

**Rules.** A sentence has at most so many words (:data:`MOST_WORDS`). It does not begin with a
pronoun that has no noun behind it, nor with a phrase of this project (:data:`PHRASES`). A help text
begins with a verb or a noun. Code, literals, tables and the headings of NumPy sections are left
out; a literal counts as one word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tests.docs.test_readers import USER_PAGES
from tests.docs.test_words import docstrings
from tests.source import TREES, modules

from holdfast.cli import app as cli_app

pytestmark = TREES

MOST_WORDS = {"docstring": 50, "help": 40, "error": 45, "page": 50}

VERB = (
    r"(?:is|are|was|were|has|have|had|does|do|may|must|can|will|would|should|says?|takes?|comes?"
    r"|goes|makes?|gets?|needs?|waits?|of|that|who|which|with|in|on|at|for|by|from|to)\b"
)
PRONOUN = re.compile(rf"(?:These|Those|This|That|They|Who|What|Whose|Whoever) {VERB}")
"""The begin of a sentence whose subject is in no other word of it."""

IT = re.compile(r"(?:It|Its|They|Their|There)\b")
"""The same in a text that a person reads alone: help, or an error."""

PHRASES = re.compile(
    r"\b(?:(?:is|are|was|were) (?:over(?=[.,;:)]|$)|gone|told)|anew|goes on|go on|there is there)\b"
)
"""Turns that no engineer would say aloud."""

NO_BEGIN = re.compile(
    r"(?:Of|Between|What|Who|Where|When|Without|With|As|Until|In|At|For|From|How|Whether|Its?)\b"
)
"""Words with which a help text does not begin: it says what the value is, or what is done."""

NOISE = re.compile(
    r"(?s:^ *```.*?^ *```$|<!--.*?-->)|^.*::\n(?:\n| +\S.*\n?)+"
    r"|^(?:Parameters|Returns|Raises|Notes)\n-+$|^[\w*`, .]+ : .*$|^ *\|.*$|^#.*$"
    r"|^.*\S {2,}\S.*$|^(?: {6,}| {2,}[-=]).*$",
    re.MULTILINE,
)
LITERAL = re.compile(r"``[^`]*``|:\w+:`[^`]*`|`[^`]*`|\[([^\]]*)\]\([^)]*\)")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring or a page, each on one line."""
    text = NOISE.sub("\n\n", text)
    for block in re.split(r"\n\s*\n|\n(?= *(?:[-*] |\d+\. ))", text):
        line = LITERAL.sub(lambda m: m[1] or "X", " ".join(block.split()))
        yield from re.split(r"(?<=[.!?]) (?=[\"'(A-Z])", line)


def helps(command: Any) -> Iterator[str]:
    """Yield the help of a command, of its options and of the commands below."""
    yield from filter(None, (command.help, *(getattr(p, "help", "") for p in command.params)))
    for below in getattr(command, "commands", {}).values():
        yield from helps(below)


def errors(tree: ast.Module) -> Iterator[str]:
    """Yield the text of every error that is raised with one; a value in it is X."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            match node.exc.args[0]:
                case ast.Constant(value=str(text)):
                    yield text
                case ast.JoinedStr(values=parts):
                    yield "".join(p.value if isinstance(p, ast.Constant) else "X" for p in parts)


@cache
def texts(kind: str) -> dict[str, list[str]]:
    """The sentences of a kind of text, by their module, command or page."""
    match kind:
        case "docstring":
            found = {name: docstrings(tree) for name, tree in modules().items()}
        case "error":
            found = {name: errors(tree) for name, tree in modules().items()}
        case "help":
            found = {name: helps(cli_app.load(name)) for name in cli_app.COMMANDS}
        case _:
            found = {page.name: iter([page.read_text("utf-8")]) for page in USER_PAGES}
    return {name: [s for text in each for s in sentences(text)] for name, each in found.items()}


def wrong(kind: str, sentence: str) -> str:
    """Why a sentence of a kind of text is wrong; "" where it is not."""
    if (n := len(sentence.split())) > MOST_WORDS[kind]:
        return f"{n} words"
    begins = [PRONOUN] if kind in ("docstring", "page") else [PRONOUN, IT]
    if found := next(filter(None, (pattern.match(sentence) for pattern in begins)), None):
        return f"{found[0]!r} names nothing"
    return f"{found[0]!r}" if (found := PHRASES.search(sentence)) else ""


@pytest.mark.parametrize("kind", MOST_WORDS)
def test_a_sentence_is_short_and_has_a_subject(kind: str) -> None:
    every = texts(kind)
    assert sum(map(len, every.values())) > 150
    assert [
        f"{name}: {why}: {s}"
        for name, each in every.items()
        for s in each
        if (why := wrong(kind, s))
    ] == []


def test_a_help_text_begins_with_a_verb_or_a_noun() -> None:
    every = [text for name in cli_app.COMMANDS for text in helps(cli_app.load(name))]
    assert [text for text in every if NO_BEGIN.match(text) or not text[0].isupper()] == []


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("docstring", "Count the moves. Those of a dead member are not counted.", "'Those of'"),
        ("docstring", "The wait is over.", "'is over'"),
        ("error", "no group here. It was deleted", "'It'"),
        ("page", " ".join(["word"] * 51), "51 words"),
        ("page", "These members wait. It ends.\n\n```\nThose are over\n```\n| is over |\n", ""),
    ],
)
def test_the_rules_find_what_they_are_for(kind: str, text: str, why: str) -> None:
    found = [said for s in sentences(text) if (said := wrong(kind, s))]
    assert "; ".join(found).startswith(why) and bool(found) == bool(why)
    assert NO_BEGIN.match("Of one topic.") and not NO_BEGIN.match("Offset of a topic.")
