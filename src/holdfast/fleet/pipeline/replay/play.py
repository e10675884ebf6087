"""A story replayed under some settings: what it would have cost.

**Rules.** The machines are those of production and of ``simulate``. Nothing is measured while a
group comes up, nor in the quiet between disturbances.
"""

from __future__ import annotations

from holdfast.fleet.pipeline.replay.costs import ReplayCosts
from holdfast.fleet.pipeline.replay.happenings import Story
from holdfast.fleet.pipeline.replay.kip848 import ReplayedSession848
from holdfast.fleet.pipeline.replay.session import ReplayCost, ReplayedSession
from holdfast.fleet.pipeline.replay.settings import ReplaySettings


def replay(
    story: Story, setting: ReplaySettings, costs: ReplayCosts, *, seed: int = 0
) -> ReplayCost:
    """Play a story under some settings.

    Parameters
    ----------
    costs : ReplayCosts
        Sessions, where the story does not know them.
    seed : int
        Of all chance in the worlds.

    Returns
    -------
    ReplayCost
        With generations if the settings are the actual ones.
    """
    total = ReplayCost()
    for number, session in enumerate(story.sessions):
        if session.happenings:
            kind = ReplayedSession848 if setting.policy == "kip848" else ReplayedSession
            kind(story, session, setting, costs, seed + number).play(total)
    return total
