"""A story replayed under some settings: what it would have cost.

**Rules.** The machines are those of production and of ``simulate``. Nothing is measured while a
group comes up, nor in the quiet between disturbances.
"""

from __future__ import annotations

from holdfast.pipeline.replay.happenings import Story
from holdfast.pipeline.replay.kip848 import ReplayedSession848
from holdfast.pipeline.replay.session import ReplayCost, ReplayedSession
from holdfast.pipeline.replay.settings import ReplaySettings
from holdfast.sim.world.costs import Costs


def replay(
    story: Story, setting: ReplaySettings, costs: Costs, *, seed: int = 0, vary: bool = False
) -> ReplayCost:
    """Play a story under some settings.

    Parameters
    ----------
    costs : Costs
        Session and rebalance timeouts are taken from the story where it knows them.
    seed : int
        Of all chance in the worlds.
    vary : bool
        Let happenings fall anywhere between two heartbeats, instead of soon after one.

    Returns
    -------
    ReplayCost
        With generations if the settings are the actual ones.
    """
    total = ReplayCost()
    for number, session in enumerate(story.sessions):
        if session.happenings:
            kind = ReplayedSession848 if setting.policy == "kip848" else ReplayedSession
            kind(story, session, setting, costs, seed + number, vary=vary).play(total)
    return total
