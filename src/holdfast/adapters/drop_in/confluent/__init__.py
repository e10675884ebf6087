"""``confluent_kafka.Consumer`` with a member of ours behind it.

``consumer`` is the class, ``side`` is what it does for its group on the application's thread,
``subscription`` is one membership of a group, ``in_poll`` are the member's duties, ``starts`` looks
up where partitions begin, and ``renewal`` makes a deaf librdkafka anew. ``routing`` sends each
configuration key where it belongs, ``codes`` are librdkafka's own error codes, ``error_message`` is
an error as a message, ``native`` looks whether a broker knows KIP-848, ``kinds`` is the
deserializing class and the patch for frameworks, and ``asynchronous`` the asyncio class.
"""

from holdfast.adapters.client_versions import check

check("confluent-kafka")
