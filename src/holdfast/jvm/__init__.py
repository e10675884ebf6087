"""Java for the broker and for Spark: ``java`` finds a Java, ``jars`` fetches the jars."""
