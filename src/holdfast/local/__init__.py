"""A Kafka and a Java on this machine, for the broker and for Spark.

``java`` finds a Java and starts Spark's JVM, and ``jars`` fetches the jars. ``broker/`` starts a
real Kafka of any version.
"""
