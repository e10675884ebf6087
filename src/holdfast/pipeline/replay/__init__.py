"""What another policy would have done: ``replay``.

``replay_rows`` reads a history, ``replay_happenings`` and ``replay_story`` make a story of it,
``replay_world`` plays the story under another policy.
"""
