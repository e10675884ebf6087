"""Proof that an assignment is optimal, and the checker that needs no trust in the solver."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.assign.claims import Claims
from holdfast.model.columns import I32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Certificate:
    """Integer potentials."""

    def proves(self, claims: Claims, target: I32) -> bool:
        """Whether ``target`` is optimal."""
        raise NotImplementedError


def verify(claims: Claims, target: I32, certificate: Certificate) -> bool:
    """Whether the certificate proves the target optimal."""
    return certificate.proves(claims, target)
