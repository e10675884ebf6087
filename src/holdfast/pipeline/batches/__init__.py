"""All at once, or batch after batch.

``jobs`` are the Spark jobs, ``split`` and ``tasks`` their steps, ``state`` what a stream keeps,
``watch`` the stream. ``storage``, ``delta``, ``schemas`` and ``views`` are tables on disk, and
reading them.
"""
