"""A validator for the part of JSON Schema that our own schema uses."""

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "boolean": (bool,),
}
_KNOWN = {
    "$schema", "title", "description", "type", "required", "additionalProperties", "properties",
    "items", "enum", "const", "pattern", "minimum", "maxItems",
}  # fmt: skip


def problems(value: Any, schema: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Every way in which a value does not follow a schema."""
    assert schema.keys() <= _KNOWN, f"this validator does not know {schema.keys() - _KNOWN}"
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(
        isinstance(value, _TYPES[n]) and isinstance(value, bool) == (n == "boolean") for n in names
    ):
        yield f"{path}: {value!r} is not {names}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, (int, float)) and value < schema.get("minimum", value):
        yield f"{path}: {value} is below {schema['minimum']}"
    if isinstance(value, dict):
        yield from _object(value, schema, path)
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{path}: more than {schema['maxItems']} items"
        for i, item in enumerate(value):
            yield from problems(item, schema.get("items", {}), f"{path}[{i}]")


def _object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}: {name} is missing"
    named = schema.get("properties", {})
    other = schema.get("additionalProperties", {})
    for name, item in value.items():
        if name not in named and other is False:
            yield f"{path}: {name} is not known"
        elif name in named or isinstance(other, dict):
            yield from problems(item, named.get(name, other), f"{path}.{name}")
