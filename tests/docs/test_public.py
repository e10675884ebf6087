"""What a program may import: it is there, it has a type, and its docstring says what it takes."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from tools.site.pages import PUBLIC

import holdfast.metrics

ROOT = Path(__file__).parents[2]
FACES = ("holdfast.confluent", "holdfast.aiokafka", "holdfast.kafka")
"""Doors with the methods of a client's own class, which the client describes."""
SELF = ("self", "cls", "args", "kwargs")
IN_ITS_MODULE = ("spark", "tables")
"""Parameters of ``holdfast.spark``, about which its opening has a rule."""
NOT_MADE = (holdfast.metrics.MemberMetrics,)
"""Classes whose objects a program is given; docs/members.md has a row for each number."""
JSON = re.compile(r"^(dict|Mapping)\[str, Any\]$")
"""A JSON document, the one result whose values have no type."""
WHOLE = ("__iter__", "__call__")
"""What a program calls though its name begins with an underscore."""
SOURCE = re.compile(r"KIP-\d+|KAFKA-\d+|Incremental Cooperative Rebalancing|Kafka's|Delta Lake")
NUMBER = re.compile(r"^(?:int|float)( \| None)?$")
UNIT = re.compile(
    r"\bn_|\bmax_|(_ms|_s|_seconds|_bytes)\b|"
    r"\b(ms|seconds|bytes|how many|how long|number|count|index|share|offset|generation|seed)\b",
    re.IGNORECASE,
)
"""A quantity, or what an integer without one is."""
ARRAY = re.compile(r"NDArray|\b(?:I32|I64|F64)\b")
SHAPE = re.compile(r"\w+\[[^\]]+\]")
IMPORTS = re.compile(
    r"^(?:>>> )?from (holdfast[\w.]*) import (?:\()?([\w, ]+)|^import (holdfast[\w.]*)", re.M
)


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
            for called, method in inspect.getmembers(thing) if inspect.isclass(thing) else ():
                found = method.fget if isinstance(method, property) else method
                is_called = called[0] != "_" or called in WHOLE
                if is_called and inspect.isfunction(found) and is_ours(found):
                    yield f"{module.__name__}.{name}.{called}", found


THINGS = dict(public())
FUNCTIONS = {name: thing for name, thing in THINGS.items() if inspect.isfunction(thing)}
OWN = {name: thing for name, thing in THINGS.items() if not name.startswith(FACES)}


def parameters(thing: Callable[..., object]) -> list[str]:
    """Parameters that a caller gives."""
    if inspect.isclass(thing) and (issubclass(thing, Exception) or thing in NOT_MADE):
        return []
    given = inspect.signature(thing).parameters
    return [name for name in given if name not in (*SELF, *IN_ITS_MODULE)]


def test_every_public_name_is_there():
    for module in map(importlib.import_module, PUBLIC):
        for name in names_of(module):
            assert getattr(module, name) is not None


def test_what_the_pages_import_is_public():
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/tutorials").glob("*"),
    ]
    found = 0
    for page in pages:
        blocks = re.findall(r"^```python.*?\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
        for module, names, alone in IMPORTS.findall("\n".join(blocks)):
            found += 1
            assert (module or alone) in PUBLIC, (page.name, module or alone)
            known = names_of(importlib.import_module(module or alone))
            assert {n.strip() for n in names.split(",") if n.strip()} <= set(known), page.name
    assert found > 20


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


def test_a_docstring_says_what_each_parameter_is():
    unsaid = {}
    for name, thing in OWN.items():
        signature = set(parameters(thing))
        if len(signature) > 1:
            unsaid[name] = signature - set(re.findall(r"\w+", inspect.getdoc(thing) or ""))
    assert len(unsaid) > 30
    assert {name: words for name, words in unsaid.items() if words} == {}


def test_a_docstring_says_what_is_raised():
    unsaid = {
        (name, error)
        for name, thing in OWN.items()
        if inspect.isfunction(thing)
        for error in re.findall(r"^ +raise (\w+Error)\(", inspect.getsource(thing), re.M)
        if error not in (inspect.getdoc(thing) or "")
    }
    assert unsaid == set()


def test_a_class_names_its_source():
    """A KIP, a JIRA, one of the documents, or whose protocol or names it follows."""
    classes = {name: c for name, c in OWN.items() if inspect.isclass(c)}
    plain = {n: c for n, c in classes.items() if not issubclass(c, Exception)}
    assert len(plain) > 15
    assert [n for n, c in plain.items() if not SOURCE.search(inspect.getdoc(c) or "")] == []


def test_a_number_has_a_unit_and_an_array_a_shape():
    lacks = {
        (name, given)
        for name, thing in OWN.items()
        if not (inspect.isclass(thing) and issubclass(thing, Exception))
        for given, of in inspect.signature(thing).parameters.items()
        for rule, annotation in ((UNIT, NUMBER), (SHAPE, ARRAY))
        if thing not in NOT_MADE and annotation.search(str(of.annotation))
        if not rule.search(f"{given} {said_of(given, thing)}")
    }
    assert lacks == set()


def said_of(given: str, thing: Callable[..., object]) -> str:
    """The entry of a parameter, or the whole docstring where it has none."""
    doc = inspect.getdoc(thing) or ""
    entry = re.search(rf"^(?:\w+, )*{given}\b[^\n]* : .*?(?=^\S|\Z)", doc, re.S | re.M)
    return entry[0] if entry else doc


def test_the_rules_find_what_they_look_for():
    assert JSON.match("dict[str, Any]") and not JSON.match("list[dict[str, Any]]")
    assert parameters(holdfast.metrics.PrometheusCollector) == ["members"]
    assert parameters(holdfast.metrics.MemberMetrics) == []
    assert UNIT.search("timeout Seconds.") and not UNIT.search("timeout It waits.")
    assert SHAPE.search("owner : int32[n_tps]") and not SHAPE.search("owner : array of int")
    assert SOURCE.search("KIP-54") and not SOURCE.search("the literature")
    assert "holdfast.Consumer.poll" in FUNCTIONS and "holdfast.confluent.KafkaError" not in THINGS
