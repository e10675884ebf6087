"""A Kafka and a Java on this machine, for the broker and for Spark.

``java`` finds a Java and starts Spark's JVM, and ``jars`` fetches the jars. ``broker`` starts and
stops a cluster of any version of Kafka; ``broker_properties`` writes the configuration of its
processes, and ``broker_server`` is one process, with the guard that ends it with its parent.
"""
