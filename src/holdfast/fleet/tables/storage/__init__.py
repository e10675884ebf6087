"""Storage of files; it does not depend on tables.

``paths`` turns a user's path or URL into a storage path, and finds its file system. ``file_system``
is the interface of every file system; ``disk`` and ``remote`` implement it. ``clients`` opens
remote storage. ``parquet`` opens files and reads them in pieces. ``private`` creates files and
folders for their owner alone.
"""
