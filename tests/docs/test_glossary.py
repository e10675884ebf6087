"""The glossary is short and names what exists; a class name names one class."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.source import TREES, modules

pytestmark = TREES

ROOT = Path(__file__).parents[2]
HEAD = 2  # lines of the table above its rows
MOST_WORDS = 25
"""Words that the field lacks; every other word is Kafka's, Spark's, Delta's or a textbook's."""

PLUG_INS = {
    "Range": "the same assignor for kafka-python and for aiokafka",
    "RoundRobin": "the same assignor for kafka-python and for aiokafka",
    "Sticky": "the same assignor for kafka-python and for aiokafka",
}
"""Names that two classes share, and why."""


def targets(node: ast.AST) -> Iterator[str]:
    """Names that a statement defines."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield name
        case ast.Assign(targets=[ast.Tuple(elts=parts)]):
            yield from (part.id for part in parts if isinstance(part, ast.Name))
        case _:
            pass


@cache
def defined() -> set[str]:
    """Every name that a module or a class defines; a class's names with the class as well."""
    names: set[str] = set()
    for tree in modules().values():
        for node in ast.walk(tree):
            names.update(targets(node))
            if isinstance(node, ast.ClassDef):
                names.update(
                    f"{node.name}.{name}" for child in node.body for name in targets(child)
                )
    return names


def test_every_identifier_of_the_glossary_exists():
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row[2])]
    assert 20 < len(rows) - HEAD <= MOST_WORDS
    assert len(named) >= len(rows) - HEAD, "a word without an identifier"
    assert [name for name in named if name not in defined()] == []


def test_every_identifier_of_the_page_for_a_new_client_exists():
    """A class, or a name with an underscore; others may be words of the client."""
    text = (ROOT / "docs" / "new-client.md").read_text()
    named = re.findall(r"`(?:\w+\.)*([a-z]+(?:_[a-z]+)+|(?:[A-Z][a-z]+){2,})(?:\(\.*\))?`", text)
    assert len(named) > 10
    assert [name for name in named if name not in defined()] == []


def test_a_word_stands_in_the_glossary_once():
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    words = [word for word in words if word not in ("word", "---")]
    assert len(words) == len(set(words))


def test_pages_of_the_glossary_exist():
    text = (ROOT / "docs" / "glossary.md").read_text()
    for page in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / "docs" / page).exists(), page


def test_a_class_name_stands_for_one_class():
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(module)
    twice = {name: where for name, where in found.items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in PLUG_INS} == {}
    assert set(PLUG_INS) <= set(twice), "an explanation that nothing needs any more"
