"""The words of ``src/holdfast``: the field's, with a subject or a verb, and no history."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from tests.source import TREES, modules

pytestmark = TREES

DIALECT = re.compile(
    r"seats?|wish(es)?|errands?|dut(y|ies)|doors?|houses?|standing|parked|deaf|renewal|keepers?"
    r"|lends?|lent|newcomers?|lately|scenes?|diary|journal|stor(y|ies)|happenings?|disturbance"
    r"|upkeep|lockstep|restless|deferral|recall|instructions?|ledger|untold|calm"
    r"|places?|asked|told|hands|keeping|stands"
)
"""Words that grew inside this project: no identifier, file or docstring has one of them."""

PLACING = re.compile(r"holdfast\.core\.assignors\..*: places?(_directly)?")
"""Assignors place partitions: the textbooks' word for that step of theirs."""

IN_PLACE = re.compile(r"\bin place\b(?! of)")
"""NumPy's word for an array that is changed."""

NO_SUBJECT = frozenset({"What", "Those", "These", "Who", "It", "They", "Of"})
"""Words with which the docstring of a function does not begin: they name nothing."""

LONGEST_OPENING = 45
"""Lines of a module's opening: one screen."""

HISTORY = re.compile(
    r"\b(used to|no longer(?! than)|not any ?more|earlier version)\b", re.IGNORECASE
)
"""Words with which a text compares the code with an older state of it."""

POINTER = re.compile(r"See (:\w+:)?`[^`]*`\.?")
"""A docstring that only names another place."""


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Every docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@cache
def texts() -> dict[str, list[str]]:
    """The docstrings of each module."""
    return {name: list(docstrings(tree)) for name, tree in modules().items()}


def with_match(pattern: re.Pattern[str], *, whole: bool = False) -> set[str]:
    """Modules with a docstring in which, or as the whole of which, a pattern is found."""
    find = pattern.fullmatch if whole else pattern.search
    return {name for name, found in texts().items() if any(map(find, found))}


def parts(name: str) -> set[str]:
    """Return the words of an identifier or of a dotted path, in lower case."""
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return {part.lower() for part in re.split(r"[_.]", split) if part}


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Yield every name that a module defines, takes or uses."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name


def test_no_identifier_and_no_file_has_a_word_of_a_dialect():
    found = {
        f"{module}: {name}"
        for module, tree in modules().items()
        for name in {module, *identifiers(tree)}
        if any(map(DIALECT.fullmatch, parts(name)))
    }
    assert {one for one in found if not PLACING.fullmatch(one)} == set()


def test_no_docstring_has_a_word_of_a_dialect():
    found = {
        f"{module}: {word}"
        for module, docs in texts().items()
        for text in docs
        for word in re.findall(
            r"[a-z]+", IN_PLACE.sub("", re.sub(r"``[^`]*``|:\w+:`[^`]*`", "", text))
        )
        if DIALECT.fullmatch(word)
    }
    assert {one for one in found if not PLACING.fullmatch(one)} == set()


def test_a_function_is_described_by_a_verb_or_a_noun():
    found = {
        f"{module}.{node.name}"
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (ast.get_docstring(node) or "?").split()[0] in NO_SUBJECT
    }
    assert found == set()


def test_no_docstring_tells_history():
    assert with_match(HISTORY) == set()


def test_no_docstring_only_names_another_place():
    assert with_match(POINTER, whole=True) == set()


def test_an_opening_is_one_screen():
    openings = {name: ast.get_docstring(tree) or "" for name, tree in modules().items()}
    long = {name for name, text in openings.items() if len(text.splitlines()) > LONGEST_OPENING}
    assert long == set()


@pytest.mark.parametrize(
    ("pattern", "caught", "passed"),
    [
        (HISTORY, "The member no longer owns it.", "It waits no longer than a second."),
        (HISTORY, "This used to be a list.", "A list is used."),
        (POINTER, "See :class:`Tail`.", "See :class:`Tail`; the columns are filled."),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern, caught, passed):
    assert (pattern.fullmatch if pattern is POINTER else pattern.search)(caught)
    assert not (pattern.fullmatch if pattern is POINTER else pattern.search)(passed)
