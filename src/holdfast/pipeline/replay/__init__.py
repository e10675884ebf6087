"""What another policy would have cost: ``replay``.

``replay_rows`` reads a history, ``replay_story`` makes a story of it (``replay_happenings`` is the
story's form), ``replay_world`` plays the story under another policy.
"""
