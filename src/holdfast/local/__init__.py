"""A Kafka and a Java on this machine, for the broker and for Spark.

``java`` finds a Java, ``jars`` fetches the jars, ``spark_java`` starts Spark's JVM, and
``class_archive`` keeps parsed classes for the next JVM. ``broker/`` starts a real Kafka of any
version.
"""
