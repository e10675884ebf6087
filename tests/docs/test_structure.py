"""The shape of ``src/holdfast``, by its syntax trees: what import-linter and mypy do not see."""

import ast
from collections.abc import Iterator

from tests.source import SOURCE, TREES, modules

pytestmark = TREES

MAX_LINES = 60
"""Lines of a function, decorators and docstring not counted."""

MAX_CLASS_LINES, MAX_METHODS = 300, 25
"""Of a class: lines with everything in it, functions of its own."""

LARGE_ON_PURPOSE = {
    "holdfast.members.clients.aiokafka.coordinator.MemberCoordinator": "aiokafka's calls",
    "holdfast.members.clients.confluent.consumer.ConfluentConsumer": "the original's calls",
    "holdfast.core.assignors.optimal.flow_moves._Flow": "one algorithm on one set of columns",
    "holdfast.core.machine.member.holdings.Holdings": "steps of a hand-over share its state",
    "holdfast.core.wire.one.reader.Reader": "a method for each small type",
    "holdfast.members.clients.librdkafka.consumer_adapter.ConsumerAdapter": "all its calls",
    "holdfast.members.clients.aiokafka.consumer.AIOKafkaConsumer": "the original's calls",
    "holdfast.members.clients.librdkafka.adapter.LibrdkafkaAdapter": "all calls of librdkafka",
    "holdfast.fleet.analysis.group.group_history.GroupHistory": "one model of one group",
    "holdfast.fleet.tables.reading.Tables": "all that reads a folder",
    "holdfast.fleet.tables.storage.remote.RemotePath": "what a path can do, and a file system",
}
"""Classes that are larger, and why."""

PRIVATE_ON_PURPOSE = {
    "holdfast.members.clients.confluent.async_consumer": "a subclass may name any other field",
    "holdfast.members.clients.confluent.errors": "librdkafka's error codes have an underscore",
    "holdfast.members.clients.aiokafka.consumer": "aiokafka makes its coordinator itself",
    "holdfast.members.clients.aiokafka.fetcher": "aiokafka hands out lists record by record",
    "holdfast.members.clients.aiokafka.adapter": "aiokafka forgets what stays",
    "holdfast.members.clients.kafka.adapter": "kafka-python makes its fetcher itself",
    "holdfast.cluster.connections": "kafka-python keeps the reason of a refused login",
    "holdfast.cluster.kafka_python_repairs": "kafka-python forgets sockets that it must close",
    "holdfast.fleet.pipeline.session": "only a started PySpark knows what spark-submit was given",
}
"""Files that read private attributes of a client library or of PySpark, and why."""


def imported(tree: ast.Module) -> Iterator[str]:
    """Names of modules that a module imports anywhere, also in functions and for types alone.

    So is what ``import_module`` is called with, and a text ``module:function``: an import on first
    use.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules() else node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))
        elif isinstance(node, ast.Constant) and ":" in str(node.value):
            yield str(node.value).partition(":")[0]


def circles(graph: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """Sets of two or more modules each of which reaches every other one."""
    reaches = {name: set(others) for name, others in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reaches[name]:
                reaches[name] |= reaches[middle]
    rings = {
        tuple(sorted({name} | {other for other in reaches[name] if name in reaches[other]}))
        for name in graph
    }
    return {ring for ring in rings if len(ring) > 1}


def functions(tree: ast.AST, inside: str) -> Iterator[tuple[str, int]]:
    """Every function: its dotted name and its lines, without decorators and docstring."""
    for node in ast.iter_child_nodes(tree):
        name = f"{inside}.{node.name}" if hasattr(node, "name") else inside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node) is not None:
                lines -= (first.end_lineno or 0) - first.lineno + 1
            yield name, lines
        yield from functions(node, name)


def large_classes(tree: ast.Module, inside: str) -> Iterator[tuple[str, int, int]]:
    """Classes above the limits: dotted name, lines, functions of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            own = sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in node.body)
            if lines > MAX_CLASS_LINES or own > MAX_METHODS:
                yield f"{inside}.{node.name}", lines, own


def own_names(tree: ast.Module) -> set[str]:
    """Attributes that the classes of a module define: methods, fields, slots, ``self.x = ...``."""
    own = {"_exit", "_replace", "_asdict", "_fields"}  # public: os's, and those of named tuples
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            parts = list(ast.walk(node))
            own |= {p.name for p in parts if isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef)}
            own |= {p.id for p in parts if isinstance(p, ast.Name) and is_stored(p)}
            own |= {p.attr for p in parts if isinstance(p, ast.Attribute) and is_stored(p)}
    return own


def is_stored(node: ast.Name | ast.Attribute) -> bool:
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
        return False
    return isinstance(node.ctx, ast.Store)


def private_reads(tree: ast.Module) -> list[str]:
    """``thing._attribute``, where no class of the same module defines the attribute."""
    own = own_names(tree)
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and ast.unparse(node.value) not in ("self", "cls", "super()")
        and node.attr not in own
    ]


def test_no_import_circle_not_even_for_types_or_in_a_function() -> None:
    known = modules().keys() - {"holdfast"}  # its public names are imported on first use
    graph = {name: {m for m in imported(modules()[name]) if m in known} for name in known}
    assert circles(graph) == set()


def test_an_import_on_first_use_is_an_import() -> None:
    tree = ast.parse("import_module('holdfast.core.names'); home = 'holdfast.errors:suggest'")
    assert {"holdfast.core.names", "holdfast.errors"} <= set(imported(tree))


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circles(graph) == {("a", "b", "c")}


def test_no_module_switches_mypy_off() -> None:
    files = SOURCE.rglob("*.py")
    switched = [f for f in files if "# mypy:" in f.read_text(encoding="utf-8")]
    assert switched == []


def test_no_function_is_longer_than_a_screen() -> None:
    every = [pair for name, tree in modules().items() for pair in functions(tree, name)]
    long = {name: lines for name, lines in every if lines > MAX_LINES}
    assert long == {}


def test_a_class_fits_in_the_head() -> None:
    every = [found for name, tree in modules().items() for found in large_classes(tree, name)]
    assert {name for name, _, _ in every} == LARGE_ON_PURPOSE.keys(), every


def test_no_private_attribute_of_another_module_is_read() -> None:
    found = {name: reads for name, tree in modules().items() if (reads := private_reads(tree))}
    assert found.keys() == PRIVATE_ON_PURPOSE.keys(), found


def test_the_rules_find_what_they_look_for() -> None:
    tree = ast.parse(
        "class A:\n    def f(self, other):\n        self._own = other._own + other._foreign\n"
    )
    assert private_reads(tree) == ["line 3: other._foreign"]
    assert dict(functions(tree, "m")) == {"m.A.f": 2}
    many = ast.parse("class A:\n" + "    def f(self): ...\n" * (MAX_METHODS + 1))
    assert list(large_classes(many, "m")) == [("m.A", MAX_METHODS + 2, MAX_METHODS + 1)]
    assert list(large_classes(tree, "m")) == []
