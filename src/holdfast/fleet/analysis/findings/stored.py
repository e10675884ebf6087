"""The table ``findings``: examinations as rows, and rows as findings.

**Rules.** A stored finding is
of its batch: its window ends when the batch's source was read. The moment of a reader and the
answers of coordinators are joined on reading
(:func:`holdfast.fleet.analysis.findings.doctor.Doctor`). A stored command has placeholders
for its source, which the reader replaces by its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.command_lines import GivenSource, with_source
from holdfast.core.model.columns import I64
from holdfast.core.names import Visible
from holdfast.fleet.analysis.findings.examination import Examination, FoundCode, found_codes
from holdfast.fleet.analysis.findings.finding import (
    RULES,
    Basis,
    Evidence,
    Few,
    Finding,
    Severity,
)
from holdfast.fleet.columnar import GroupedTable, codes
from holdfast.fleet.tables.columns.holdable import LAST_US
from holdfast.fleet.tables.columns.schemas import arrow_schema, from_columns
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import SomeGroups, sort_rows

EXAMINED: Final = "examined"
"""Note of a batch with findings: the window of its examination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The window in which the groups of some tables were examined, in UTC milliseconds."""

    end_ms: int
    since_ms: int | None = None

    def as_note(self) -> dict[str, int | None]:
        """Return the note of the batch, as JSON allows."""
        return {"end_ms": self.end_ms, "since_ms": self.since_ms}

    @classmethod
    def of(cls, notes: Mapping[str, Any]) -> Examined | None:
        """Return the window of the findings of a batch, of its notes; None if it holds none."""
        note = notes.get(EXAMINED)
        return None if note is None else cls(**note)


def finding_rows(examinations: Iterable[Examination]) -> pa.Table:
    """Return the findings of examinations as rows of the table ``findings``."""
    rows = [row for examination in examinations for row in _rows(examination)]
    names = arrow_schema("findings").names
    return from_columns("findings", {name: [row[name] for row in rows] for name in names})


def _rows(examination: Examination) -> Iterable[dict[str, Any]]:
    history = examination.history
    for number, found in enumerate(examination.findings):
        seen = found.evidence
        yield {
            "group": history.name,
            "number": number,
            "code": found.code,
            "severity": str(found.severity),
            "basis": str(found.basis),
            "text": found.text,
            "ended_timestamp": _us(found.ended_ms),
            "follows": found.follows or None,
            "cost_lower_seconds": found.cost_lower_s,
            "cost_upper_seconds": found.cost_upper_s,
            "generations": list(seen.generations.shown),
            "n_generations": seen.generations.total,
            "from_timestamp": _us(seen.from_ms),
            "to_timestamp": _us(seen.to_ms),
            "members": list(seen.members.shown),
            "n_members": seen.members.total,
            "topic_partitions": list(seen.partitions.shown),
            "n_partitions": seen.partitions.total,
            "figures": json.dumps(seen.figures),
            "command": found.command,
            "timestamp": _us(history.end_ms),
        }


def _us(ms: int | None) -> int | None:
    """Return microseconds, within the years that a table holds: a record may state any time."""
    return None if ms is None or ms < 0 else 1000 * min(ms, LAST_US // 1000)


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: rows are cached
class StoredFindings:
    """Findings of tables, by group."""

    grouped: GroupedTable
    source: GivenSource  # origin of the tables as the reader knows it, for commands

    @classmethod
    def of(cls, findings: pa.Table, source: GivenSource) -> StoredFindings:
        """Take rows of the table in its order."""
        return cls(grouped=GroupedTable.of(findings), source=source)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _with_ms(self.grouped.rows).to_pylist()
        return found

    @property
    def codes(self) -> frozenset[str]:
        """Codes of all findings."""
        return frozenset(pc.unique(self.grouped.rows["code"]).to_pylist())

    def ranks(self, groups: Sequence[str]) -> I64:
        """Return the rank of each group's worst active severity; -1 without an active finding."""
        rows = self.grouped.rows
        severity, names = codes(rows, "severity")
        rank = np.asarray([Severity(name).rank for name in names], np.int64)[severity]
        rank[pc.is_valid(rows["ended_timestamp"]).to_numpy()] = -1
        bounds = (self.grouped.bounds.get(group, (0, 0)) for group in groups)
        found = [rank[low:high].max(initial=-1) for low, high in bounds]
        return np.asarray(found, np.int64)

    def found_codes(self, groups: Sequence[str]) -> list[tuple[FoundCode, ...]]:
        """Return the codes of each group, as its verdict has them; equal ones are one object."""
        rows = self.grouped.rows
        active = rows["ended_timestamp"].is_null().to_pylist()
        every = list(
            zip(rows["code"].to_pylist(), rows["severity"].to_pylist(), active, strict=True)
        )
        bounds = (self.grouped.bounds.get(group, (0, 0)) for group in groups)
        return [_found_codes(tuple(every[low:high])) for low, high in bounds]

    def of_group(self, group: str) -> tuple[Finding, ...]:
        """Return the findings of a group, worst first."""
        low, high = self.grouped.bounds.get(group, (0, 0))
        return tuple(_finding(row, self.source) for row in self._rows[low:high])


def stored_findings(some: SomeGroups, source: GivenSource) -> StoredFindings:
    """Return the stored findings of some groups, for a source."""
    return StoredFindings.of(sort_rows(some.table("findings").rows, TABLES["findings"]), source)


@lru_cache(maxsize=65_536)
def _found_codes(found: tuple[tuple[str, str, bool], ...]) -> tuple[FoundCode, ...]:
    return found_codes(
        FoundCode(code=code, severity=Severity(severity), is_active=is_active)
        for code, severity, is_active in found
    )


def _with_ms(rows: pa.Table) -> pa.Table:
    """Return rows with times as UTC milliseconds."""
    for name in ("ended_timestamp", "from_timestamp", "to_timestamp"):
        at = rows.schema.get_field_index(name)
        whole = rows[name].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        rows = rows.set_column(at, name, whole)
    return rows


def _finding(row: Mapping[str, Any], source: GivenSource) -> Finding:
    return Finding(
        rule=RULES[row["code"]],
        severity=Severity(row["severity"]),
        basis=Basis(row["basis"]),
        text=Visible(row["text"]),
        ended_ms=row["ended_timestamp"],
        follows=row["follows"] or "",
        cost_lower_s=row["cost_lower_seconds"],
        cost_upper_s=row["cost_upper_seconds"],
        command=with_source(row["command"], source),
        evidence=Evidence(
            generations=Few(tuple(row["generations"]), row["n_generations"]),
            from_ms=-1 if row["from_timestamp"] is None else row["from_timestamp"],
            to_ms=-1 if row["to_timestamp"] is None else row["to_timestamp"],
            members=Few(tuple(map(Visible, row["members"])), row["n_members"]),
            partitions=Few(tuple(map(Visible, row["topic_partitions"])), row["n_partitions"]),
            figures=json.loads(row["figures"]),
        ),
    )
