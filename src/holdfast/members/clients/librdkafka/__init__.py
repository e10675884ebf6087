"""librdkafka as a client of a member: ``holdfast.Consumer`` and ``holdfast.confluent`` use it.

``adapter`` is what both have in common, and ``consumer_adapter`` is for ``holdfast.Consumer``.
``recreation`` recreates a stalled client, and keeps a fork of the process from destroying it.
"""

from holdfast.cluster.versions import check

check("confluent-kafka")
