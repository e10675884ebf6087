"""All at once, or batch after batch.

``jobs`` are the Spark jobs, ``split`` and ``tasks`` their steps, ``state`` what a stream keeps,
``watch`` the stream. ``schemas`` makes Spark's schemas, ``views`` and ``delta`` show the tables to
Spark's users.
"""
