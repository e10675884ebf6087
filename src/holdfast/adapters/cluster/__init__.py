"""What is asked of a cluster, over kafka-python's network layer.

``connections`` is that layer, ``refused`` closes what it leaves open, ``render`` spells settings as
each client library does; ``lookup`` and ``cluster`` ask for topics and offsets, ``broker_lags`` and
``lag_source`` for lags.
"""
