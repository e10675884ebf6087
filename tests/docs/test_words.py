"""The words of the docstrings of ``src/holdfast``: the noun again, and no history."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from tests.source import TREES, modules

pytestmark = TREES

MOST_PER_THOUSAND = {"these": 1.25, "who": 0.5, "told": 0.35}
"""A word that sends the reader back, and how often a thousand words of docstrings may have it."""

LONGEST_OPENING = 45
"""Lines of a module's opening: one screen."""

LONG_ON_PURPOSE = {
    "holdfast.core.machine.leader.delayed_rebalance": "the order of decisions, with proof",
    "holdfast.core.machine.leader.successors": "seven rules, each with the example that proves it",
    "holdfast.core.machine.member.member": "how a runtime drives the member, and every rule of it",
}
"""Modules whose opening is longer, and why."""

HISTORY = re.compile(
    r"\b(used to|no longer(?! than)|not any ?more|earlier version)\b", re.IGNORECASE
)
"""Words with which a text compares the code with an older state of it."""

NO_HISTORY = {
    "holdfast.core.machine.leader.successors": "a wait that has ended",
}
"""Modules in which such words are about time that passes in a group, or about lengths."""

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


@pytest.mark.parametrize("word", MOST_PER_THOUSAND)
def test_the_noun_stands_again_instead_of_a_word_that_sends_the_reader_back(word):
    words = [w for found in texts().values() for text in found for w in text.split()]
    one = re.compile(rf"\b{word}\b", re.IGNORECASE)
    n_found = sum(one.search(w) is not None for w in words)
    assert 1000 * n_found / len(words) <= MOST_PER_THOUSAND[word]


def test_no_docstring_tells_history():
    assert with_match(HISTORY) <= NO_HISTORY.keys()


def test_no_docstring_only_names_another_place():
    assert with_match(POINTER, whole=True) == set()


def test_an_opening_is_one_screen_unless_a_reason_is_named():
    openings = {name: ast.get_docstring(tree) or "" for name, tree in modules().items()}
    long = {name for name, text in openings.items() if len(text.splitlines()) > LONGEST_OPENING}
    assert long <= LONG_ON_PURPOSE.keys()


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
