"""A Kafka and a Java on this machine, for the broker and for Spark.

``java`` finds a Java and starts Spark's JVM, and ``jars`` fetches the jars. ``broker`` starts and
stops a cluster of any version of Kafka; ``broker_server`` is one process of it, with its
configuration and the guard that ends it with its parent.
"""
