"""Kinds of groups: how each is known, how its members' messages are read, and its words.

``kind`` says what a row of the table has, ``rows`` is the table, with one row a kind. ``connect``,
``streams`` and ``worker`` read what members of classic groups of these kinds say; plain consumers
are read in columns (:mod:`holdfast.fleet.pipeline.ingest.decode_classic`). ``given_lists`` is the
form in which all of them say what a member was given.
"""
