"""The jobs that write the tables: of a dump at once, or of a stream batch after batch.

``jobs`` are the Spark jobs; ``split`` is the first step of a batch and ``tasks`` the second.
``watch`` is the stream, ``spans`` says which records a batch takes, ``state`` what it keeps between
batches. ``schemas`` makes Spark's schemas; ``stored_files`` makes frames of files, and
``views`` shows the tables to users of Spark.
"""
