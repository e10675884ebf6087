"""Connections and questions to a cluster, over kafka-python's network layer.

``connections`` wraps this layer, ``versions`` says in which version a request is sent, ``refused``
closes the sockets that the layer leaves open and reads last answers, ``render`` spells settings for
each client library, ``properties`` reads files of them.
``diagnosis`` says why a cluster does not answer. ``lookup`` (for a member) and ``cluster`` (for the
command line) ask for topics and offsets, ``record_times`` for the time of a record, ``groups`` for
what coordinators know of groups, in requests of kafka-python and of ``messages/``; ``groups_now``
puts such answers together. ``broker_lags`` and ``lag_source`` ask for lags.
"""
