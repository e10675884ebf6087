"""Kinds of groups: how each is recognised, how its members' messages are read, and its words.

``kind`` defines a row of the table. ``rows`` is the table, with one row a kind, and reads the
messages of members of classic Kafka Streams groups, of Kafka Connect workers and of Workers.
"""
