"""What another policy would have cost: ``replay``.

``rows`` reads a history, ``commits`` its commits, ``estimates`` the group's
costs out of both; ``resources`` turns connectors, tasks and resources of workers into
partitions of kinds; ``story`` makes a story of it (``happenings`` is its form).
``settings`` says what members offer, ``draws`` draws what the history leaves open,
``session`` plays one session in a world (``kip848`` in the model of a KIP-848 group),
and ``play`` plays the story. ``trust`` says what of it not to trust, and
``mends`` tries which cost would mend it.
"""
