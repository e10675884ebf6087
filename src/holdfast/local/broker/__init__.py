"""A real Kafka on this machine, of any version.

``broker`` starts and stops a cluster, ``properties`` writes the configuration of its processes,
``server`` is one process, with the guard that ends it with its parent.
"""
