"""Kinds of groups: how each is known, how its members' messages are read, and its words.

``kind`` says what a row of the table has, ``rows`` is the table, with one row a kind. ``connect``,
``streams`` and ``worker`` read the messages of the members of classic groups, one kind each; plain
consumers are read in columns (:mod:`holdfast.fleet.pipeline.ingest.decode_classic`).
``given_lists`` makes the lists in which ``connect``, ``streams`` and ``worker`` say what a member
was given.
"""
