"""The JSON API of ``holdfast serve``: groups, one group, its rows, and the OpenAPI document.

**Rules.** Columns have the names, types and order of the tables
(:mod:`holdfast.fleet.tables.columns.stored`), a group has the names of ``holdfast doctor --format
json``, and numbers are those of the pages. Times are ISO 8601 in UTC with milliseconds. Names are
raw, as the cluster has them. An unknown value is null. A value that the document does not allow is
an error, and not the default. Rows of one request are at most :data:`MOST_ROWS`.

**Strategy.** The document (:func:`openapi`) is made of the tables' definitions, and
:func:`check` reads requests by its parameters; so the two cannot differ.

References: OpenAPI 3.1.0; JSON Schema 2020-12.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64
from holdfast.errors import ConfigError
from holdfast.fleet.analysis.findings.doctor import group_json, moment
from holdfast.fleet.analysis.findings.finding import RULES
from holdfast.fleet.analysis.findings.rules_now import awaited_ids
from holdfast.fleet.analysis.group.present_members import PresentMember, present_members
from holdfast.fleet.analysis.times import NOT_KNOWN_BY_POLLS
from holdfast.fleet.report.serving.group_index import (
    ALL,
    DURATION,
    MILLIS,
    NO_LAG,
    SEVERITIES,
    SORTS,
    GroupIndex,
    IndexView,
    TimeRange,
    Verdicts,
    rows_within,
    select,
)
from holdfast.fleet.report.serving.live import rebalancing_s
from holdfast.fleet.report.serving.served_fleet import ServedFleet
from holdfast.fleet.tables.columns.definition import Column, DType, Table
from holdfast.fleet.tables.columns.stored import NOT_LOADED, TABLES
from holdfast.fleet.tables.reading import flatten

MOST_ROWS: Final = 1_000
_NOT_SHOWN: Final = frozenset({"offset_commits", "movements", "bad_records"})
SHOWN: Final = tuple(name for name in TABLES if name not in _NOT_SHOWN)
"""Tables with rows of groups that are in memory, or read for one request."""

Schema = dict[str, Any]

_TYPES: Final[Mapping[DType, Schema]] = {
    DType.STRING: {"type": "string"},
    DType.BOOL: {"type": "boolean"},
    DType.INT32: {"type": "integer"},
    DType.INT64: {"type": "integer"},
    DType.FLOAT64: {"type": "number"},
    DType.TIMESTAMP: {"type": "string", "format": "date-time"},
    DType.INT32_LIST: {"type": "array", "items": {"type": "integer"}},
    DType.INT64_LIST: {"type": "array", "items": {"type": "integer"}},
    DType.STRING_LIST: {"type": "array", "items": {"type": "string"}},
}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _object(properties: Schema, doc: str = "", *, only: bool = True) -> Schema:
    """Return the schema of an object with all of its properties, and no others."""
    more = {"description": doc} if doc else {}
    closed = {"additionalProperties": False} if only else {}
    return {
        "type": "object",
        **more,
        "required": list(properties),
        "properties": properties,
        **closed,
    }


def _value(kind: str, doc: str = "", **more: Any) -> Schema:
    """Return the schema of a value."""
    return {"type": kind, **more, **({"description": doc} if doc else {})}


def _known(kind: str, doc: str = "", **more: Any) -> Schema:
    """Return the schema of a value, or null where it is unknown."""
    return _or_null(_value(kind, doc, **more))


_POLLED: Final = _value(
    "boolean",
    "Whether the rows come from polls of coordinators, not from the offsets topic: "
    f"{NOT_KNOWN_BY_POLLS}.",
)
_FOUND = _object(
    {
        "code": _value("string", enum=sorted(RULES)),
        "name": _value("string"),
        "severity": _value("string", enum=list(SEVERITIES)),
        "active": _value("boolean"),
    }
)
_GROUP_ROW = _object(
    {
        "group": _value("string", "Name as the cluster has it."),
        "state": _value("string", "Present state in Kafka's words."),
        "rebalancing_seconds": _known(
            "number", "Time since the present rebalance is known; null without one."
        ),
        "members": _known("integer", minimum=0),
        "lag": _known("integer", "Records behind, in all partitions."),
        "lag_seconds": _known("number", "Age of the oldest unread record of a subscribed topic."),
        "rebalances": _known("integer", "In the time range."),
        "downtime_lower_seconds": _known(
            "number", "Downtime of a partition in the time range, at least."
        ),
        "downtime_seconds": _known("number", "The same, at most."),
        "cause": _value("string", "Cause with the longest downtime, or empty."),
        "findings": _known(
            "array",
            "Findings of the doctor, the worst first; null until it was examined.",
            items=_FOUND,
        ),
    }
)
_MEMBER = _object(
    {
        "member_id": _value("string"),
        "group_instance_id": _known("string", "Static member's name."),
        "client_id": _value("string"),
        "client_host": _value("string", "Host the broker saw."),
        "client": _known("string", "Client library, as far as the records show it."),
        "partitions": _value("integer", minimum=0),
        "since": _known("string", "First generation with this member id.", format="date-time"),
        "since_is_oldest": _value("boolean", "Whether that is the oldest generation on record."),
        "last_commit": _known("string", "Of one of its partitions.", format="date-time"),
        "lag": _known("integer", "Records behind, in its partitions."),
        "lag_seconds": _known("number", "Age of the oldest unread record of its partitions."),
        "awaited": _value(
            "boolean", "Whether a present rebalance waits for it, or may wait for it."
        ),
    },
    "A present member: of the coordinator's answer, else of the last generation.",
)
_GROUP = _object(
    {
        "group": _value("string"),
        "state": _value("string"),
        "members": _value("integer"),
        "polled": _POLLED,
        "rebalances": _value("integer"),
        "downtime_seconds": _value("number"),
        "findings": _value("array", items=_value("object")),
        "present_members": _value(
            "array",
            "Awaited members first, then those with the greatest lag.",
            maxItems=MOST_ROWS,
            items=_MEMBER,
        ),
    },
    "A group of the JSON of the doctor (docs/doctor.schema.json), for the time range.",
    only=False,
)


def _page_of(row: Schema) -> Schema:
    return _object(
        {
            "polled": _POLLED,
            "total": _value("integer", "Rows on all pages.", minimum=0),
            "page": _value("integer", minimum=1),
            "size": _value("integer", minimum=1, maximum=MOST_ROWS),
            "rows": _value("array", maxItems=MOST_ROWS, items=row),
        }
    )


def _row_of(table: Table) -> Schema:
    return _object(
        {
            name: _of_column(c, name)
            for c, name in zip(table.columns, table.flat_names, strict=True)
        },
        table.doc,
    )


def _of_column(column: Column, name: str) -> Schema:
    """Return the schema of a column; a flat view has elements of a list."""
    schema = _TYPES[column.dtype]
    if name != column.name:
        schema = schema["items"]
    unit = f"; {column.unit}" if column.unit and column.unit not in column.doc else ""
    held = _or_null(schema) if column.nullable or column.dtype is DType.FLOAT64 else schema
    return {**held, "description": f"{column.doc}{unit}"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query: its name, schema, and description."""

    name: str
    schema: Schema
    doc: str

    @property
    def document(self) -> Schema:
        """Return the parameter as OpenAPI."""
        return {"name": self.name, "in": "query", "description": self.doc, "schema": self.schema}


_MOMENT: Schema = {
    "anyOf": [
        _value("string", format="date-time"),
        _value("string", pattern=f"^{MILLIS}$"),
        _value("string", pattern=f"^{DURATION}$"),
    ]
}
_RANGE = (
    Parameter("from", _MOMENT, "First moment: ISO 8601, epoch milliseconds, or 6h before the end."),
    Parameter("to", _MOMENT, "Last moment, in the same forms; by default the end of the tables."),
)
_PAGES = (
    Parameter("order", _value("string", enum=["asc", "desc"]), "Order of the sort column."),
    Parameter("page", _value("integer", minimum=1, maximum=10**6), "Counted from 1."),
    Parameter("size", _value("integer", minimum=1, maximum=MOST_ROWS), "Rows of a page."),
)
OF_GROUPS = (
    *_RANGE,
    Parameter("find", _value("string", maxLength=300), "Part of a name, or a finding's code."),
    Parameter("state", _value("string", maxLength=300), "Only groups in this state."),
    Parameter(
        "least", _value("string", enum=list(SEVERITIES)), "Only with such findings, or worse."
    ),
    Parameter("sort", _value("string", enum=list(SORTS)), "Column; by default `findings`."),
    *_PAGES,
)
OF_GROUP = _RANGE


def of_rows(table: Table) -> tuple[Parameter, ...]:
    """Return the parameters of a table's rows: lists do not sort."""
    named = zip(table.columns, table.flat_names, strict=True)
    lists = (DType.STRING_LIST, DType.INT32_LIST, DType.INT64_LIST)
    columns = [
        name for column, name in named if column.name == table.explode or column.dtype not in lists
    ]
    sort = Parameter("sort", _value("string", enum=columns), "Column; by default its order.")
    return (*_RANGE, sort, *_PAGES)


def check(words: Mapping[str, str], parameters: Sequence[Parameter]) -> None:
    """Check a query by the document; raise ConfigError for a value that it does not allow."""
    for one in parameters:
        text, schema = words.get(one.name), one.schema
        if text is None:
            continue
        if "enum" in schema and text not in schema["enum"]:
            raise ConfigError(f"{one.name}: expected one of {', '.join(schema['enum'])}")
        if schema.get("type") == "integer":
            good = re.fullmatch(r"[0-9]{1,9}", text, re.ASCII)
            if not good or not schema["minimum"] <= int(text) <= schema["maximum"]:
                limits = f"{schema['minimum']} to {schema['maximum']}"
                raise ConfigError(f"{one.name}: expected a whole number, {limits}")
        if "anyOf" in schema and not text:
            raise ConfigError(f"{one.name}: expected a moment")
        if len(text) > schema.get("maxLength", len(text)):
            raise ConfigError(f"{one.name}: expected at most {schema['maxLength']} characters")


def groups(fleet: ServedFleet, words: Mapping[str, str]) -> Schema:
    """Return the rows of groups for a query; raise ConfigError as :func:`check`."""
    check(words, OF_GROUPS)
    view = fleet.ranges.view(words)
    index, verdicts, since_s = view.index, view.verdicts, rebalancing_s(view.index, view.live)
    rows = select(
        index,
        verdicts,
        IndexView(
            find=words.get("find", "").strip(),
            state=words.get("state", ""),
            least=words.get("least", ""),
            sort=words.get("sort", "findings"),
            falls=words.get("order", "desc") == "desc",
        ),
    )
    return _cut(
        fleet, rows, words, lambda some: (_group_row(index, verdicts, since_s, i) for i in some)
    )


def _group_row(
    index: GroupIndex, verdicts: Verdicts, since_s: Mapping[str, float], i: int
) -> Schema:
    name, lag = index.names[i], int(index.figures.lag[i])
    history, (lower_s, upper_s) = index.has_history, index.figures.downtimes_s(i)
    return {
        "group": name,
        "state": index.figures.state[i],
        "rebalancing_seconds": _number(since_s.get(name, math.nan)),
        "members": int(index.figures.n_members[i]) if history else None,
        "lag": None if lag == NO_LAG else lag,
        "lag_seconds": _number(float(index.lag_s[i])),
        "rebalances": int(index.figures.n_rebalances[i]) if history else None,
        "downtime_lower_seconds": _number(lower_s) if history else None,
        "downtime_seconds": _number(upper_s) if history else None,
        "cause": index.cause[i],
        "findings": None
        if name not in verdicts
        else [
            {
                "code": one.code,
                "name": RULES[one.code].name,
                "severity": str(one.severity),
                "active": one.is_active,
            }
            for one in verdicts[name].codes
        ],
    }


def group(fleet: ServedFleet, name: str, words: Mapping[str, str]) -> Schema | None:
    """Return a group as the doctor examines it in a time range; None for an unknown one."""
    check(words, OF_GROUP)
    served, live = fleet.served, fleet.want(name)
    if name not in served.tables.groups and name not in live.names:
        return None
    within = _range_of(fleet, words)
    doctor = replace(
        served.doctor(within, [name]), live=fleet.ranges.live_in(within), source=fleet.given
    )
    examined = doctor.fleet()
    (examination,) = examined.listed
    verdict = doctor.verdict(examined.figures, 0, examination.findings)
    document: Schema = group_json(verdict)
    awaited = awaited_ids(examination.findings)
    members = present_members(examination.history, awaited)[:MOST_ROWS]
    return {**document, "present_members": [_member_row(one) for one in members]}


def _member_row(one: PresentMember) -> Schema:
    return {
        "member_id": one.member_id,
        "group_instance_id": one.instance_id,
        "client_id": one.client_id,
        "client_host": one.host,
        "client": one.client or None,
        "partitions": one.n_partitions,
        "since": None if one.since_ms is None else moment(one.since_ms),
        "since_is_oldest": one.is_since_first,
        "last_commit": None if one.commit_ms is None else moment(one.commit_ms),
        "lag": one.lag,
        "lag_seconds": None if one.lag_s is None else _number(one.lag_s),
        "awaited": one.is_awaited,
    }


def rows(fleet: ServedFleet, name: str, table: str, words: Mapping[str, str]) -> Schema:
    """Return the rows of a group in a table; a table without times is whole in every range."""
    definition, sort = TABLES[table], words.get("sort", "")
    check(words, of_rows(definition))
    within, tables = _range_of(fleet, words), fleet.served.tables
    if table in NOT_LOADED or not tables.is_held:
        found = tables.stored(table, groups=[name], columns=definition.names)
    else:
        found = tables.of_group(name, table)
    if "timestamp" in definition.names:
        found = rows_within(found, within)
    found = flatten(found, definition)
    direction = "descending" if words.get("order") == "desc" else "ascending"
    keys = [sort] if sort else [key for key in definition.order if key in found.column_names]
    order = pc.sort_indices(found, sort_keys=[(key, direction) for key in keys])

    def written(some: Sequence[int]) -> Iterator[Schema]:
        return _plain(found.take(pa.array(some, pa.int64())))

    return _cut(fleet, order.to_numpy(), words, written)


def _range_of(fleet: ServedFleet, words: Mapping[str, str]) -> TimeRange:
    return fleet.ranges.range_of(words) or ALL


def _cut(fleet: ServedFleet, found: I64, words: Mapping[str, str], written: Any) -> Schema:
    """Return one page of rows; a page behind the last one has none."""
    page, size = int(words.get("page", 1)), int(words.get("size", 100))
    some = found[(page - 1) * size : page * size].tolist()
    polled = bool(fleet.served.polled)
    return {
        "polled": polled,
        "total": len(found),
        "page": page,
        "size": size,
        "rows": list(written(some)),
    }


def _plain(found: pa.Table) -> Iterator[Schema]:
    """Yield rows for JSON."""
    for row in found.to_pylist():
        yield {
            name: moment(round(value.timestamp() * 1000))
            if isinstance(value, datetime)
            else _number(value)
            if isinstance(value, float)
            else value
            for name, value in row.items()
        }


def _number(value: float) -> float | None:
    """Return a number for JSON, which has no NaN and no infinity."""
    return round(value, 3) if math.isfinite(value) else None


def _get(
    summary: str, parameters: Sequence[Schema], schema: Schema, *, is_known: bool = False
) -> Schema:
    """Return one operation of the document; ``is_known`` if nothing can be missing."""
    failed = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    errors = {status: text for status, text in _ERRORS.items() if status != "404" or not is_known}
    answer = {"description": "the answer", "content": {"application/json": {"schema": schema}}}
    return {
        "get": {
            "summary": summary,
            "parameters": list(parameters),
            "responses": {
                "200": answer,
                **{status: {"description": text, **failed} for status, text in errors.items()},
            },
        }
    }


_ERRORS: Final = {
    "400": "a value is not allowed",
    "401": "the token is missing",
    "403": "the Host header names another computer, or a page of another site asks",
    "404": "unknown group",
}


def openapi() -> Schema:
    """Return the OpenAPI document of the API."""
    name = {
        "name": "group",
        "in": "path",
        "required": True,
        "description": "Name of the group, percent-encoded.",
        "schema": {"type": "string", "minLength": 1},
    }
    schemas = {
        "Error": _object({"error": {"type": "string"}}),
        "GroupRow": _GROUP_ROW,
        "Group": _GROUP,
        **{table: _row_of(TABLES[table]) for table in SHOWN},
    }
    named = {one: {"$ref": f"#/components/schemas/{one}"} for one in schemas}
    of_groups, of_group = ([one.document for one in some] for some in (OF_GROUPS, OF_GROUP))
    one = "/api/groups/{group}"
    paths = {
        "/api/groups": _get(
            "Groups, the worst first.", of_groups, _page_of(named["GroupRow"]), is_known=True
        ),
        one: _get("One group with its findings.", [name, *of_group], named["Group"]),
    }
    for table in SHOWN:
        parameters = [name, *(parameter.document for parameter in of_rows(TABLES[table]))]
        paths[f"{one}/{table}"] = _get(TABLES[table].doc, parameters, _page_of(named[table]))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdfast",
            "version": version("kafka-holdfast"),
            "description": "Consumer groups of a cluster: the numbers of the pages as JSON.",
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }
