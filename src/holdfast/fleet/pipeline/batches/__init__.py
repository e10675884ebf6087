"""The jobs that write the tables: of a dump at once, or of a stream batch after batch.

``history`` takes a dump or a cluster as one batch, and ``watch`` is the stream. ``jobs`` has the
steps of a batch; ``split`` is what the first one does and ``tasks`` what the second one does.
``state`` is what a stream keeps between batches.
``views`` shows the tables to users of Spark.
"""
