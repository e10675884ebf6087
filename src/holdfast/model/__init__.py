"""Groups, topics and assignments as columns, and every number that we report about them.

``topics`` and ``group`` hold a consumer group; ``reported`` turns what its members report into
columns, ``partitions`` and ``partition_columns`` have the three shapes of a set of partitions,
``snapshot`` reads the JSON. ``assignment`` is who owns what. ``measure``,
``measure_history``, ``lag`` and ``fidelity`` define the numbers; ``columns`` has the dtypes,
``limits`` the special numbers of Kafka's messages.
"""
