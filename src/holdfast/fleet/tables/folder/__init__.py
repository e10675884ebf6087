"""A folder of tables: which files count, and what belongs together.

Each table is a Delta table: ``delta_log`` says which files count in a version of it. ``manifest``
says which versions belong together, ``version`` reads such a version or holds its rows, and
``commits`` is the folder as it is now and makes a batch visible in all tables at once.
``last_writer`` says which process wrote last. ``contents`` says what may stand in the folder and
sweeps it, and ``documents`` what its JSON may say. ``writing`` writes files, and ``upkeep`` merges
small ones and drops old rows.
"""
