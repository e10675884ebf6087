"""``confluent_kafka.Consumer`` with a member of ours behind it.

``consumer`` is the class, ``group_calls`` and ``commit_calls`` are its calls about the group, and
``turns`` says whose turn it is. ``hands`` is what librdkafka does for the seat: ``starts`` tells it
where partitions begin, ``silence`` notices that it is deaf, and ``renewal`` makes it anew.
``routing`` sends each configuration key where it belongs, ``codes`` are librdkafka's own error
codes, ``problems`` and ``error_message`` are errors as messages, ``native`` looks whether a broker
knows KIP-848, ``kinds`` is the deserializing class and the patch for frameworks, and
``asynchronous`` the asyncio class.
"""

from holdfast.cluster.client_versions import check

check("confluent-kafka")
