"""Kinds of groups: how each is recognised, how its members' messages are read, and its words.

``kind`` defines a row of the table, ``rows`` is the table, with one row a kind. ``connect``,
``streams`` and ``worker`` read the messages of the members of classic groups, one kind each; plain
consumers are read in columns (:mod:`holdfast.fleet.pipeline.ingest.decode_classic`).
``given_lists`` makes the lists of a member's assignment for ``connect``, ``streams`` and
``worker``.
"""
