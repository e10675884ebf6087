"""Short ways to write groups down, and to read results, in the tests of assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.assignors.registry import Named, assign
from holdfast.core.assignors.result import Result
from holdfast.core.model.group import Group

Rows = dict[str, dict[str, list[int]]]


def snapshot(
    partitions: Mapping[str, int],
    members: Mapping[str, Sequence[str]] | Sequence[str],
    *,
    owned: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    lags: Mapping[str, Sequence[int]] | None = None,
    generation: int = 1,
    generations: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A group; members given as a list all subscribe to every topic."""
    topics = members if isinstance(members, Mapping) else {m: [*partitions] for m in members}
    held = owned or {}
    rows = [
        {
            "id": member,
            "topics": list(own),
            "owned": [[t, p] for t, ps in held.get(member, {}).items() for p in ps],
            "generation": (generations or {}).get(member, generation if held.get(member) else -1),
        }
        for member, own in topics.items()
    ]
    result: dict[str, Any] = {"partitions": dict(partitions), "members": rows}
    if lags is not None:
        result["lags"] = {topic: list(each) for topic, each in lags.items()}
    return result


def run(group: Mapping[str, Any], name: Named, **options: Any) -> Result:
    """Assign a snapshot."""
    return assign(Group.from_dict(group), name, **options)


def settled(group: dict[str, Any], rows: Rows, **changes: Any) -> dict[str, Any]:
    """The same group once its members own ``rows``."""
    members = [
        dict(
            member,
            owned=[[t, p] for t, ps in rows.get(member["id"], {}).items() for p in ps],
            generation=7,
        )
        for member in group["members"]
    ]
    return {**group, "members": members, **changes}


def tp(text: str) -> Rows:
    """``"C0: t0p0 t1p1; C1:"`` as rows."""
    rows: Rows = {}
    for part in text.split(";"):
        member, _, cells = part.partition(":")
        own = rows.setdefault(member.strip(), {})
        for cell in cells.split():
            topic, _, partition = cell.partition("p")
            own.setdefault(topic, []).append(int(partition))
    return {m: {t: sorted(own[t]) for t in sorted(own)} for m, own in rows.items()}
