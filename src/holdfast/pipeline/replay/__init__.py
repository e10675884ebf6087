"""What another policy would have cost: ``replay``.

``replay_rows`` reads a history, ``replay_commits`` its commits, ``replay_estimates`` the group's
costs out of both; ``replay_resources`` turns connectors, tasks and resources of workers into
partitions of kinds; ``replay_story`` makes a story of it (``replay_happenings`` is its form).
``replay_settings`` says what members offer, ``replay_draws`` draws what the history leaves open,
``replay_session`` plays one session in a world (``replay_848`` in the model of a KIP-848 group),
and ``replay_world`` plays the story. ``replay_trust`` says what of it not to trust, and
``replay_mends`` tries which cost would mend it.
"""
