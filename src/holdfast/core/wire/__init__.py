"""Bytes to values and back, in Kafka's layouts; independent of assignors.

============  ============================================================
``layouts/``  the layouts of Kafka's messages and records, and holdfast's
``one/``      one value at a time
``many/``     many at once, without a Python loop for each
============  ============================================================

**Rules.** Every failure is a :class:`holdfast.errors.WireError` whose reason is one of
:class:`holdfast.errors.Reason`. No reader allocates from a count that the input cannot hold; memory
stays below 32 times the input (48 for the sets of holdfast's own frames), which tests measure.
"""
