"""Bytes to values and back, in Kafka's layouts; knows no assignor.

=========================  ===============================================================
module                     layouts
=========================  ===============================================================
``codec``                  the primitives: a bounded reader, a writer, the reasons of failure;
                           the door to ``reader``, ``writer`` and ``reasons``
``consumer_protocol``      ConsumerProtocolSubscription and -Assignment v0 to v3
``sticky_user_data``       what the sticky and cooperative-sticky assignors put in user data
``incremental``            the messages of Designs I, II and III, as the document prints them
``container``              their meaning inside the consumer protocol: claim, verdict, memory
``connect``                Kafka Connect's embedded protocol v0 to v2, for reading
``subscription_columns``   many subscriptions to columns, columns to many assignments
``offsets_records``        one record of ``__consumer_offsets`` to one value
``offsets_batch``          columns of such records to columns
=========================  ===============================================================

**Rules.** Every failure is a :class:`holdfast.errors.WireError` whose reason is one of
:class:`holdfast.wire.codec.Reason`. No reader allocates from a count that the input cannot hold,
so memory stays within a small multiple of the input.
"""
