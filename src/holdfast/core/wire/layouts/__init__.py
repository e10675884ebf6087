"""The layouts of messages and records.

=========================  ===============================================================
``consumer_protocol``      ConsumerProtocolSubscription and -Assignment v0 to v3; user data of the
                           assignors sticky and cooperative-sticky
``container``              the messages of Designs I, II and III inside the consumer protocol
``state_shard``            one member's shard of the state of a design's leader, carried there
``other_protocols``        for reading: Kafka Connect's embedded protocol v0 to v2, user data of
                           classic Kafka Streams v1 to v11, and the messages of Designs I, II and
                           III as the document prints them
``record_size``            the record that a broker takes, and the size of a group's record
``share_state``            records of the topic in which share groups keep their state, for reading
``offsets_schemas``        every record of ``__consumer_offsets`` as data
``offsets_records``        reads and writes one such record by ``offsets_schemas``
=========================  ===============================================================
"""
