"""Bugs that are planted into the machines, to see them caught."""

from __future__ import annotations

import pytest

from holdfast.machine.member.holdings import Holdings


def rejoin_before_the_hand_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member claims no more what it is still running, and rejoins at once."""
    give_up = Holdings.give_up

    def too_early(self, resources, identity, deadline_ms, **how):
        actions = give_up(self, resources, identity, deadline_ms, **how)
        self.owned -= resources
        self.hand_over = None
        return actions

    monkeypatch.setattr(Holdings, "give_up", too_early)
