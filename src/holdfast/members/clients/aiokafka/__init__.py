"""``AIOKafkaConsumer`` with a member of holdfast instead of its group coordinator.

``consumer`` is the class, ``coordinator`` the interface of aiokafka's coordinator over the session.
``adapter`` is the client adapter, with an assignment of aiokafka that can be changed, ``fetcher``
delivers lists of records, and ``config`` reads the keywords.
``assignors`` are for the stock aiokafka.
"""

from holdfast.cluster.versions import check

check("aiokafka")
