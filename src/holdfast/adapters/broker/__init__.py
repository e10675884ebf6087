"""A real Kafka on this machine: ``broker`` starts it, ``broker_guard`` ends it with its parent."""
