"""The jobs that write the tables: of a dump at once, or of a stream batch after batch.

``history`` takes a dump or a cluster as one batch, and ``watch`` is the stream. ``jobs`` has the
steps of a batch: the first one is :mod:`holdfast.fleet.pipeline.ingest.split`, the second one is
``tasks``. ``state`` is what a stream keeps between batches.
"""
