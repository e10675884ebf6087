"""What a program may import: it is there, it has a type, and its docstring says what it takes."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType

import pytest
from tools.site.pages import PUBLIC

ROOT = Path(__file__).parents[2]
FACES = ("holdfast.confluent", "holdfast.aiokafka", "holdfast.kafka")
"""Doors whose methods are those of a client's own class, which the client describes."""
JSON = re.compile(r"^(dict|Mapping)\[str, Any\]$")
"""A JSON document, the one result whose values have no type."""
WHOLE = ("__iter__", "__call__")
"""What a program calls though its name begins with an underscore."""
DOTTED = re.compile(r"[\w.]+")
CODE = re.compile(r"^ *```(python|diff)[^\n]*\n(.*?)^ *```$", re.M | re.S)
PAGES = [
    ROOT / "README.md",
    *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "adr"),
    *(ROOT / "docs/examples").glob("*.py"),
]
ROLE = re.compile(r":(?:class|meth|func|data|mod|attr|exc):`~?([\w.]+)`")


def names_of(module: ModuleType) -> list[str]:
    """The public names of a module."""
    own = [n for n, o in vars(module).items() if getattr(o, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [n for n in own if n[0] != "_"]))


def is_ours(thing: object) -> bool:
    """Whether it is defined here, and not in a client."""
    return str(getattr(thing, "__module__", "")).startswith("holdfast")


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every public class, function and method of ours, each by its name."""
    for module in map(importlib.import_module, PUBLIC):
        for name in names_of(module):
            thing = getattr(module, name)
            if not is_ours(thing) or not callable(thing):
                continue
            yield f"{module.__name__}.{name}", thing
            for called, method in (
                inspect.getmembers_static(thing) if inspect.isclass(thing) else ()
            ):
                found = function_of(method)
                is_called = called[0] != "_" or called in WHOLE
                if is_called and inspect.isfunction(found) and is_ours(found):
                    yield f"{module.__name__}.{name}.{called}", found


def function_of(member: object) -> object:
    """The function below a member of a class."""
    match member:
        case property():
            return member.fget
        case cached_property():
            return member.func
        case classmethod() | staticmethod():
            return member.__func__
    return member


THINGS = dict(public())
FUNCTIONS = {name: thing for name, thing in THINGS.items() if inspect.isfunction(thing)}


def code_of(page: Path) -> list[str]:
    """Each block of Python of a page: of a diff, what it adds."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".py":
        return [text]
    blocks = []
    for language, block in CODE.findall(text):
        lines = textwrap.dedent(block).splitlines()
        if language == "diff":
            lines = [line[1:] for line in lines if line.startswith("+")]
        if lines and lines[-1].startswith("@"):  # what it decorates stands in the prose
            lines.append("def decorated(): ...")
        blocks.append("\n".join(lines))
    return blocks


def used_of_ours(blocks: Iterable[str]) -> Iterator[str]:
    """Every name of ours that code imports, or takes from a module that it imports."""
    modules: dict[str, str] = {}
    for node in (node for block in blocks for node in ast.walk(ast.parse(block))):
        match node:
            case ast.ImportFrom(module=str(module)) if f"{module}.".startswith("holdfast."):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Import():
                for alias in node.names:
                    if f"{alias.name}.".startswith("holdfast."):
                        yield alias.name
                        modules[alias.asname or "holdfast"] = (
                            alias.name if alias.asname else "holdfast"
                        )
            case ast.Attribute() if DOTTED.fullmatch(written := ast.unparse(node)):
                first, _, rest = written.partition(".")
                if first in modules:
                    yield f"{modules[first]}.{rest}"


def is_public(name: str) -> bool:
    """Whether it is a public module, or a name of one, or a method of such a name."""
    words = name.split(".")
    for cut in range(len(words), 0, -1):
        if (module := ".".join(words[:cut])) in PUBLIC:
            given, rest = names_of(importlib.import_module(module)), words[cut:]
            return not rest or rest[0] in given
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_imports_is_public(page: Path) -> None:
    assert [name for name in used_of_ours(code_of(page)) if not is_public(name)] == []


def test_the_pages_import_what_they_show():
    used = {name for page in PAGES for name in used_of_ours(code_of(page))}
    assert {"holdfast.Group", "holdfast.errors.LawError", "holdfast.spark.history"} <= used
    assert {"holdfast.kafka.KafkaConsumer", "holdfast.confluent.install"} <= used


@pytest.mark.parametrize(
    ("code", "used"),
    [
        (
            "from holdfast.errors import (\n    LawError,\n    Nothing,\n)",
            "holdfast.errors.Nothing",
        ),
        ("def f():\n    from holdfast import Group as G, NO_OWNER", "holdfast.NO_OWNER"),
        ("from holdfast.core.model.group import Group", "holdfast.core.model.group.Group"),
        ("import holdfast.core.wire as wire\nwire.decode(b'')", "holdfast.core.wire.decode"),
        ("import holdfast.spark as hs\nhs.tables('x').rows", "holdfast.spark.tables"),
        ("import holdfast\nholdfast.confluent.instal()", "holdfast.confluent.instal"),
    ],
)
def test_a_name_that_is_not_public_is_found(code: str, used: str) -> None:
    assert used in [name for name in used_of_ours([code]) if not is_public(name)]


def test_a_docstring_points_to_what_is_public():
    """A role that begins with ``holdfast``; a short one is a name beside it."""
    assert private_roles() == {}


def private_roles() -> dict[str, set[str]]:
    """What docstrings of public things name and no program may import, by the thing."""
    found = {}
    for name, thing in THINGS.items():
        module = next(m for m in sorted(PUBLIC, key=len, reverse=True) if name.startswith(f"{m}."))
        own = name.removeprefix(f"{module}.").split(".")[0]
        for role in ROLE.findall(inspect.getdoc(thing) or ""):
            full = role.startswith("holdfast")
            beside = {f"{module}.{role}", f"{module}.{own}.{role}"}
            if not (is_public(role) if full else any(b in THINGS for b in beside)):
                found.setdefault(name, set()).add(role)
    return found


def test_the_promise_of_stability_names_every_public_module():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    promise = text.partition("## What is stable")[2]
    assert [module for module in PUBLIC if f"`{module}`" not in promise] == []


def test_a_result_has_a_type():
    told = {name: str(f.__annotations__.get("return", "Any")) for name, f in FUNCTIONS.items()}
    untyped = {n: r for n, r in told.items() if re.search(r"\bAny\b", r) and not JSON.match(r)}
    assert untyped == {}


def test_each_has_a_docstring():
    assert [name for name, thing in THINGS.items() if not thing.__doc__] == []
