"""Fleets with a known history, as tables in memory: for tests, benchmarks and screenshots.

A fleet is written as the pipeline would: ``generations``, ``members``, ``assignments``,
``movements``, ``rebalances``, ``gaps``, ``lag``. The history is a script of generations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.fleet.analysis.findings.doctor import Doctor, Verdict, worst_ranked
from holdfast.fleet.analysis.findings.examination import Examination, worst_first
from holdfast.fleet.analysis.group.rebalances import CommitTimes
from holdfast.fleet.tables.reading import Tables

START_MS = 1_763_712_000_000  # 2025-11-21 08:00:00 UTC
Owners = Mapping[tuple[str, int], str]


@dataclass
class Script:
    """A group's history, one generation after the other."""

    group: str
    topics: Mapping[str, int]
    start_ms: int = START_MS
    generation: int = 0
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    owners: dict[tuple[str, int], str] = field(default_factory=dict)
    last: dict[tuple[str, int], str] = field(default_factory=dict)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append({"group": self.group, **row})

    def settle(
        self,
        after_s: float,
        members: Sequence[str | tuple[str, dict[str, Any]]],
        owners: Owners,
        *,
        cause: str = "join",
        gap: tuple[float, float] | None = None,
        state: str | None = None,
        **rebalance: Any,
    ) -> Script:
        """One more generation, ``after_s`` seconds after the start."""
        at = self.start_ms + round(after_s * 1000)
        self.generation += 1
        common = {"generation": self.generation, "timestamp": at}
        people = {}
        for m in members:
            name, extra = m if isinstance(m, tuple) else (m, {})
            people[name] = extra
        self.add(
            "generations",
            **common,
            group_type="classic",
            state=state or ("Stable" if people else "Empty"),
            protocol_type="consumer",
            protocol="cooperative-sticky",
            leader=min(people, default=None),
            n_members=len(people),
            n_partitions=len(owners),
            log_partition=0,
            log_offset=self.generation,
        )
        for name, extra in people.items():
            self._member(name, extra, common, owners)
        moves = self._move(common, owners)
        if gap is not None:
            self._gap(common, moves, gap)
        self._rebalance(common, people, owners, moves, cause, gap, rebalance)
        self.owners, self.members = dict(owners), people
        self.last.update(owners)
        return self

    def commit(self, after_s: float, topic: str, partition: int) -> None:
        """A commit of a partition, ``after_s`` seconds after the start."""
        at = self.start_ms + round(after_s * 1000)
        self.add(
            "offset_commits",
            topic=topic,
            partition=partition,
            offset=at - self.start_ms,
            commit_timestamp=at,
            timestamp=at,
            is_tombstone=False,
            log_partition=0,
            log_offset=0,
        )

    def _member(self, name: str, extra: Any, common: Any, owners: Owners) -> None:
        mine = sorted(tp for tp, owner in owners.items() if owner == name)
        row = {
            "group_type": "classic",
            "member_id": name,
            "client_id": name.rsplit("-", 1)[0],
            "client_host": "/10.0.0.7",
            "rebalance_timeout_ms": 300_000,
            "session_timeout_ms": 45_000,
            "subscribed_topics": sorted(self.topics),
            "n_claimed": 0,
            "n_partitions": len(mine),
        }
        self.add("members", **common, **{**row, **extra})
        for topic in sorted({t for t, _ in mine}):
            partitions = [p for t, p in mine if t == topic]
            self.add("assignments", **common, member_id=name, topic=topic, partitions=partitions)

    def _move(self, common: Any, owners: Owners) -> list[tuple[tuple[str, int], str]]:
        moves = []
        for tp in sorted({*owners, *self.owners}):
            now, before, last = owners.get(tp), self.owners.get(tp), self.last.get(tp)
            if now == before:
                continue
            if now is None:
                kind, source = "lost", before
            elif before is None:
                kind = "gained" if last in (None, now) else "moved_through_gap"
                source = last
            else:
                kind, source = "moved", before
            moves.append((tp, kind))
            self.add(
                "movements",
                **common,
                topic=tp[0],
                partition=tp[1],
                from_member=source,
                to_member=now,
                kind=kind,
            )
        return moves

    def _gap(self, common: Any, moves: Any, gap: tuple[float, float]) -> None:
        low, high = gap
        # The last sign of the old owner is never before the record that names it.
        before = [r["timestamp"] for r in self.rows["generations"]][-2:-1]
        seen = max([common["timestamp"] - round(high * 1000), *before])
        for (topic, partition), kind in moves:
            if kind.startswith("moved") or kind == "gained":
                self.add(
                    "ownership_gaps",
                    **common,
                    topic=topic,
                    partitions=[partition],
                    gap_lower_seconds=low,
                    gap_upper_seconds=high,
                    last_seen=seen,
                    basis="handover",
                )

    def _rebalance(
        self,
        common: Any,
        people: Mapping[str, Any],
        owners: Owners,
        moves: Any,
        cause: str,
        gap: tuple[float, float] | None,
        extra: Mapping[str, Any],
    ) -> None:
        kinds = [kind for _, kind in moves]
        kept = sum(self.owners.get(tp) == m for tp, m in owners.items())
        n_gaps = sum(k.startswith("moved") or k == "gained" for k in kinds)
        low, high = gap or (0.0, 0.0)
        row = {
            "group_type": "classic",
            "previous_generation": self.generation - 1 or None,
            "cause": cause,
            "confidence": 0.9,
            "cause_basis": "inferred",
            "n_missed_generations": 0,
            "n_members": len(people),
            "n_joined": len(people.keys() - self.members.keys()),
            "n_left": len(self.members.keys() - people.keys()),
            "n_restarted": 0,
            "n_partitions": len(owners),
            "n_kept": kept,
            "n_moved": kinds.count("moved"),
            "n_moved_through_gap": kinds.count("moved_through_gap"),
            "n_gained": kinds.count("gained"),
            "n_lost": kinds.count("lost"),
            "n_needed_moves": 0,
            "n_avoidable_moves": kinds.count("moved"),
            "balance_score": 0,
            "stickiness": 1.0,
            "gap_lower_seconds": n_gaps * low,
            "gap_upper_seconds": n_gaps * high,
            "leader_changed": False,
            "cooperative": True,
            "needed_moves_proven": True,
            "unseen_ms": self._unseen_ms(common, people),
        }
        self.add("rebalances", **common, **{**row, **extra})

    def _unseen_ms(self, common: Any, people: Mapping[str, Any]) -> list[int]:
        """Since the members that went were seen last: the round before, or a commit of theirs."""
        rows = self.rows["generations"][-2:-1]
        found = []
        for member in sorted(self.members.keys() - people.keys()):
            signs = [row["timestamp"] for row in rows]
            signs += [
                row["timestamp"]
                for row in self.rows.get("offset_commits", [])
                if self.owners.get((row["topic"], row["partition"])) == member
            ]
            found.append(common["timestamp"] - max(signs))
        return found

    def lag(self, lags: Mapping[tuple[str, int], int | None], **more: Any) -> Script:
        """Lag rows as of now."""
        for (topic, partition), lag in sorted(lags.items()):
            row = {
                "current_offset": None if lag is None else 1000,
                "log_start_offset": 0,
                "log_end_offset": 1000 + (lag or 0),
                "lag": lag,
                "member_id": self.owners.get((topic, partition)),
                "has_unread": None if lag else False,
                "status": "none" if lag is None else "committed",
                "clamped": "none",
                "is_idle": False,
            }
            self.add("lag", topic=topic, partition=partition, **{**row, **more})
        return self

    def anomaly(self, kind: str, *member_ids: str, generation: int = 1, **more: Any) -> Script:
        """A row of anomalies about a generation, which was settled before."""
        (at, *_) = (
            row["timestamp"] for row in self.rows["generations"] if row["generation"] == generation
        )
        row = {"generation": generation, "timestamp": at, "kind": kind, "detail": "-"}
        self.add("anomalies", **{**row, "member_ids": list(member_ids), **more})
        return self

    def lag_at(
        self, after_s: float, lags: Mapping[str, int | None], *, seconds: float | None = None
    ) -> Script:
        """A reading of the lag by topic, ``after_s`` seconds after the start."""
        for topic, lag in sorted(lags.items()):
            self.add(
                "lag_history",
                topic=topic,
                timestamp=self.start_ms + round(after_s * 1000),
                lag=lag,
                lag_seconds=seconds,
                n_partitions=1,
                n_unknown=int(lag is None),
                resolution_seconds=21_600,
            )
        return self


def deal(topics: Mapping[str, int], members: Sequence[str], shift: int = 0) -> dict[Any, str]:
    """Partitions dealt round robin."""
    tps = [(t, p) for t in sorted(topics) for p in range(topics[t])]
    return {tp: members[(i + shift) % len(members)] for i, tp in enumerate(tps)} if members else {}


def rolling_bounce(
    group: str = "etl", topics: Mapping[str, int] | None = None, members: int = 4
) -> Script:
    """Every member leaves and comes back under a new id, one after the other."""
    topics = topics or {"orders": 8, "clicks": 4}
    script = Script(group, topics)
    ids = [f"worker-{i}-{i:03x}a" for i in range(members)]
    owners = deal(topics, ids)
    script.settle(0, ids, owners, cause="first_start")
    for i in range(members):
        at = 60 + 60 * i
        rest = [m for m in ids if m != ids[i]]
        lost = [tp for tp, m in owners.items() if m == ids[i]]
        kept = {tp: m for tp, m in owners.items() if m != ids[i]}
        spread = {**kept, **{tp: rest[k % len(rest)] for k, tp in enumerate(lost)}}
        script.settle(at, rest, spread, cause="leave", gap=(0.4, 3.2))
        ids[i] = ids[i][:-1] + "b"
        script.settle(at + 12, sorted(ids), kept, cause="restart")
        owners = {**kept, **dict.fromkeys(lost, ids[i])}
        script.settle(at + 15, sorted(ids), owners, cause="cooperative_follow_up", gap=(3.0, 3.1))
    script.settle(420, [], {}, cause="leave")
    script.settle(450, ids, owners, cause="join")
    return script


def tables(*scripts: Script) -> dict[str, list[dict[str, Any]]]:
    """Tables of several groups."""
    joined: dict[str, list[dict[str, Any]]] = {}
    for script in scripts:
        for name, rows in script.rows.items():
            joined.setdefault(name, []).extend(rows)
    return joined


def examine_all(
    held: Tables, groups: Sequence[str] | None = None, **options: Any
) -> list[Examination]:
    """Every group with its history, the worst first, as the doctor shows them."""
    doctor = Doctor(tables=held, groups=groups, commits=CommitTimes(held, groups), **options)
    return sorted(doctor.examinations(), key=worst_first)


def verdicts(held: Tables, most: int | None = None, **options: Any) -> list[Verdict]:
    """Verdicts on every group, the worst first; ``most`` of them, or all."""
    return worst_ranked(Doctor(tables=held, **options).ranked(), most)
