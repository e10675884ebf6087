"""Storage of files; it does not depend on tables.

``paths`` turns a user's path or URL into a storage path, and finds its file system. ``file_system``
is the interface of every file system, and that of a disk; ``remote`` has the others. ``clients``
opens remote storage. ``parquet`` opens files and reads them in pieces.
"""
