"""``AIOKafkaConsumer`` with a member of holdfast instead of its group coordinator.

``consumer`` is the class, ``coordinator`` the interface of aiokafka's coordinator over the session.
``adapter`` is aiokafka's client adapter, with its record of the assignment, ``fetcher`` delivers
lists of records, and ``config`` reads the keywords.
``assignors`` are for the stock aiokafka.
"""

from holdfast.cluster.versions import check

check("aiokafka")
