"""Java for the broker and for Spark: ``java`` finds a Java, ``jars`` fetches the jars.

``spark_java`` is how Spark's JVM is started, ``class_archive`` the classes it keeps for the next.
"""
