"""Bytes to values and back, in Kafka's layouts; knows no assignor.

============  ============================================================
``layouts/``  what Kafka's messages and records look like, and ours
``one/``      one value at a time
``many/``     many at once, without a Python loop for each
============  ============================================================

**Rules.** Every failure is a :class:`holdfast.errors.WireError` whose reason is one of
:class:`holdfast.core.wire.one.reasons.Reason`. No reader allocates from a count that the input
cannot hold; memory stays below 32 times the input (48 for the sets of our own frames), which tests
measure.
"""
