"""Bytes to values and back, in Kafka's layouts; knows no assignor.

Layouts, one value at a time:

=========================  ===============================================================
``consumer_protocol``      ConsumerProtocolSubscription and -Assignment v0 to v3
``sticky_user_data``       what the sticky and cooperative-sticky assignors put in user data
``incremental``            the messages of Designs I, II and III, as the document prints them
``container``              their meaning inside the consumer protocol: claim, verdict, memory
``connect``                Kafka Connect's embedded protocol v0 to v2, for reading
``offsets_schemas``        every record of ``__consumer_offsets`` as data: the table of both forms
``offsets_records``        one record to one value, and back
``structs``                an array of structs in such a value
=========================  ===============================================================

What they are written with: ``codec`` is the door to ``reader``, ``writer`` and ``reasons``.

Many at once, without a Python loop for each:

=========================  ===============================================================
``offsets_batch``          columns of records to columns, with a reason for every bad row
``offsets_embedded``       the subscriptions and assignments in group records to columns
``columns``                what they become
``lockstep``               the reader: all messages advance by one field at a time
``plans``, ``tags``        layouts compiled for it; tagged fields
``cursor``, ``ragged``     a position in each message; gathering runs of bytes, UTF-8
``subscription_columns``   the subscriptions of one group to the columns of a leader
``topic_blocks``           their front part, which members mostly share
``name_arrays``            arrays of names in lock step
``subscription_slow``      members of a rare shape, one by one
``assignment_columns``     an owner column to all assignments of a group
``name_table``             names in bytes to indices
=========================  ===============================================================

**Rules.** Every failure is a :class:`holdfast.errors.WireError` whose reason is one of
:class:`holdfast.wire.codec.Reason`. No reader allocates from a count that the input cannot hold;
memory stays below 32 times the input (48 for the sets of our own frames), which tests measure.
"""
