"""kafka-python's ``KafkaConsumer`` with a member of holdfast instead of its group coordinator.

``consumer`` is the class, and reads its keywords; ``coordinator`` answers the client's calls
about its group and has its commits and their errors, and ``adapter`` is its client adapter
for :mod:`holdfast.members.session`. ``assignors`` are for kafka-python's own consumer.
"""

from holdfast.cluster.versions import check

check("kafka-python")
