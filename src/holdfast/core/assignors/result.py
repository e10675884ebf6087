"""The outcome of an assignor: the assignment, the withheld partitions, and their quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.core.assignors.certificate import Certificate, proves
from holdfast.core.assignors.claims import Claims
from holdfast.core.model import measure
from holdfast.core.model.columns import I32, NO_OWNER, frozen
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.group import Group
from holdfast.core.model.measure import Assignment, owner_to_dict
from holdfast.core.model.reported import ReportedClaims


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The result of an assignor's function, for the registry."""

    # int32[n_tps]: owner wanted for each topic-partition, or NO_OWNER without a subscriber.
    target: I32
    # Returns prices that prove the target if no assignment is better, or None if the group is too
    # large for them. Assignors with other goals leave it out.
    prove: Callable[[], Certificate | None] | None = None
    # The claims that the assignor counted, where it counts fewer than :func:`normalise` does.
    claims: Claims | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The quality of an assignment. Numbers are of the target, before anything is withheld."""

    # Sum of the load differences over all pairs of members; 0 is perfect (KIP-54).
    balance_score: int
    loads: dict[str, int]  # topic-partitions of each member
    spread: int  # largest load minus smallest
    kept: int  # valid claims that stay with their member
    moved: int  # valid claims that go to another member
    # The fewest moves any assignment of this balance (and rack locality) needs; None where that is
    # not proven.
    needed_moves: int | None
    withheld: int  # topic-partitions that wait for a member to revoke them
    # True only where the certificate was verified: nothing is better by the assignor's goals.
    optimal: bool
    # Which of ``balance``, ``racks``, ``kept``, ``previous`` and ``topics`` are proven to be the
    # best possible, each given those before it. ``topics`` is proven if ``topic_excess`` is 0.
    # ``previous`` is named only where a member claims a partition without a right to it.
    proven: tuple[str, ...]
    # Topic-partitions read inside their member's rack; None where no racks are known.
    rack_matches: int | None
    cross_rack: int | None  # topic-partitions read from another rack; None where no racks are known
    # How unevenly topics are spread over their members: the sum over topics and members of the
    # squared number of partitions, less that sum for even quotas. 0 is the best value. A higher
    # value is the end of a bounded search and may not be the lowest possible one.
    topic_excess: int
    dropped_claims: dict[str, int]  # claims that did not count, by reason
    lags: dict[str, int] | None  # total lag of each member; None where no lags are known
    lag_spread: int | None  # largest lag of a member minus smallest


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The outcome of one assignor on one group.

    Parameters
    ----------
    name : str
        Assignor.
    group : Group
        Input.
    claims : Claims
        The group's claims.
    counted : Claims
        The claims that the assignor counted.
    target : int32[n_tps]
        Owner wanted for each topic-partition.
    owner : int32[n_tps]
        Owner assigned now: ``target`` without what is withheld.
    pending_tp, pending_member : int32[n_withheld]
        Withheld topic-partitions, and the member that still claims each.
    prove : callable, optional
        Returns the certificate.

    References: KIP-54 (balance and stickiness); KIP-429, whose cooperative members get only what no
    other member still claims.
    """

    name: str
    group: Group
    claims: Claims
    counted: Claims
    target: I32
    owner: I32
    pending_tp: I32
    pending_member: I32
    prove: Callable[[], Certificate | None] | None = None

    @classmethod
    def of(cls, name: str, claims: Claims, plan: Solution, *, cooperative: bool) -> Result:
        """Make a result.

        Parameters
        ----------
        name : str
            Assignor.
        claims : Claims
            The group's claims.
        plan : Solution
            The target, int32[n_tps], and its proof.
        cooperative : bool
            Whether partitions that another member claims are withheld.
        """
        owner, none = plan.target, np.empty(0, np.int32)
        tp, member = claims.withheld(plan.target) if cooperative else (none, none)
        if len(tp):
            owner = plan.target.copy()
            owner[tp] = NO_OWNER
        return cls(
            name=name,
            group=claims.group,
            claims=claims,
            counted=plan.claims or claims,
            target=frozen(plan.target),
            owner=frozen(owner),
            pending_tp=tp,
            pending_member=member,
            prove=plan.prove,
        )

    @property
    def withheld(self) -> dict[int, int]:
        """Claimant of each withheld topic-partition; its next owner is in ``target``."""
        return dict(zip(self.pending_tp.tolist(), self.pending_member.tolist(), strict=True))

    @property
    def assignment(self) -> Assignment:
        """The checked assignment of what is assigned now."""
        return Assignment(group=self.group, owner=self.owner)

    def next_round(self) -> Group:
        """Return the group after every member carried out this result.

        Each member has revoked the partitions that are not in its assignment. It claims those of
        its assignment, one generation after the newest one before; nothing else has changed.

        References: KIP-429.
        """
        group = self.group
        newest = int(group.generation.max(initial=0))
        return Group.build(
            topics=group.topics,
            member_ids=group.member_ids,
            instance_ids=group.instance_ids,
            subscriptions=group.subscriptions,
            claims=ReportedClaims.from_owner(group.topics, self.owner),
            generation=np.full(group.n_members, min(newest + 1, INT32_MAX), dtype=np.int32),
            rack=group.rack,
            lags=group.lags,
        )

    def to_dict(self) -> dict[str, dict[str, list[int]]]:
        """Return ``{member id: {topic: [partitions]}}`` of what is assigned now."""
        return owner_to_dict(self.group, self.owner)

    @cached_property
    def certificate(self) -> Certificate | None:
        """Proof that no assignment is better, if the assignor gives one; made on first use."""
        return None if self.prove is None else self.prove()

    @cached_property
    def optimal(self) -> bool:
        """Whether the certificate proves that no assignment is better; checked on first use."""
        return verify(self)

    @cached_property
    def topic_excess(self) -> int:
        """Sum of squared topic quotas above that of even quotas (KAFKA-16277)."""
        return measure.topic_excess(self.group, self.target) - measure.topic_floor(self.group)

    @cached_property
    def proven(self) -> tuple[str, ...]:
        """Goals that are proven to be reached, in their order.

        Without a certificate, loads within one of each other prove ``balance``. A topic excess of 0
        always proves ``topics``.
        """
        goals: list[str] = []
        if self.optimal and self.certificate is not None:
            racks = self.group.topics.rack_start is not None
            named = (
                ("balance", True),
                ("racks", racks),
                ("kept", self.certificate.keeps),
                ("previous", self.certificate.prefers_previous),
            )
            goals = [goal for goal, counts in named if counts]
        elif measure.spread(measure.loads(self.target, self.group.n_members)) <= 1:
            goals = ["balance"]
        return (*goals, "topics") if self.topic_excess == 0 else tuple(goals)

    @cached_property
    def quality(self) -> Quality:
        """Every number about this result; computed on first use."""
        group, ids = self.group, self.group.member_ids
        loads = measure.loads(self.target, group.n_members)
        moved = measure.count_moved(self.claims.owner, self.target)
        lags = None
        if group.lags is not None:
            lags = measure.lag_per_member(self.target, group.lags, group.n_members)
        return Quality(
            balance_score=measure.balance_score(loads),
            loads=dict(zip(ids, loads.tolist(), strict=True)),
            spread=measure.spread(loads),
            kept=measure.count_kept(self.counted.owner, self.target),
            moved=moved,
            needed_moves=moved if "kept" in self.proven else None,
            withheld=len(self.pending_tp),
            optimal=self.optimal,
            proven=self.proven,
            rack_matches=measure.count_rack_matches(group, self.target),
            cross_rack=measure.count_cross_rack(group, self.target),
            topic_excess=self.topic_excess,
            dropped_claims=dict(self.counted.dropped().counts),
            lags=None if lags is None else dict(zip(ids, lags.tolist(), strict=True)),
            lag_spread=None if lags is None else measure.spread(lags),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data: ``assignment``, ``withheld`` (with the claimant) and ``quality``."""
        ids, name_of = self.group.member_ids, self.group.topics.name_of
        withheld = {
            "{}-{}".format(*name_of(tp)): ids[self.target[tp]] for tp in self.pending_tp.tolist()
        }
        quality = {key: getattr(self.quality, key) for key in Quality.__dataclass_fields__}
        return {"assignment": self.to_dict(), "withheld": withheld, "quality": quality}


def verify(result: Result) -> bool:
    """Return whether the certificate of a result proves that no assignment is better.

    Parameters
    ----------
    result : Result
        Result of an assignor that gives a certificate; without one the answer is False.

    Raises
    ------
    ModelError
        The result's target is not a valid assignment at all.

    Notes
    -----
    Cost: O(n_tps + sum of topics over distinct subscriptions).

    References: KIP-54, "Guarantees"; the goals are those of ``sticky`` in docs/assignors.md.
    """
    certificate = result.certificate
    return certificate is not None and proves(certificate, result.claims, result.target)
