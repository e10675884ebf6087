"""Kinds of groups: how each is recognised, how its members' messages are read, and its words.

``kind`` defines a row of the table, ``rows`` is the table, with one row a kind. ``streams`` reads
the messages of members of classic Kafka Streams groups, ``increments`` those of Kafka Connect
workers and of Workers; plain consumers are read in columns
(:mod:`holdfast.fleet.pipeline.ingest.decode_classic`).
"""
