"""What needs a Java and is no Python package: ``java`` finds one, ``jars`` has what runs on it."""
