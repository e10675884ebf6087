"""Numbers of Kafka's messages that have a meaning of their own; importing them needs no NumPy."""

INT32_MAX = 2**31 - 1
"""The largest int32: no count, index or duration in Kafka's messages is larger."""

NO_GENERATION = -1
"""Generation of a member that has none."""
