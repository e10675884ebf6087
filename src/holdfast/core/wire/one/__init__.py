"""One value at a time: Kafka's primitive types, and parts of records.

===================  ============================================================================
``reader``           reads primitive types from bytes, and never beyond their end
``writer``           writes them
``bits``             fields of single bits, for a state shard
``topic_ids``        topic ids as Kafka's tools show them; a group's partition of the offsets topic
===================  ============================================================================

**Rules.** A failure is a :class:`~holdfast.errors.WireError`. It names the reason, the schema, the
version, the field with its path, and the position at which the failing primitive *starts*. Fields
have the names of Kafka's schemas in snake case, such as ``owned_partitions[2].topic``; records of
the offsets topic keep the names of their schemas unchanged.
"""
