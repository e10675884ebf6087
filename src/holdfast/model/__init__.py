"""Groups, topics and assignments as columns, and every number we report about them.

``snapshot`` reads and writes the JSON; ``topics``, ``group`` and ``assignment`` are its columns
(dtypes in ``columns``); ``measure``, ``measure_history``, ``lag`` and ``fidelity`` define the
numbers; ``tables`` says what the tables of the pipeline hold.
"""
