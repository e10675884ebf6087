"""A folder of tables: which files count, and which belong together.

Each table is a Delta table: ``delta_log`` records which files count in a version of it.
``manifest`` records which versions belong together and which process wrote last, ``snapshot``
reads such versions or has their rows in memory, and ``commits`` is the present folder and makes a
batch visible in all tables at once. ``files`` names, writes and sweeps the files, ``maintenance``
merges small ones and drops old rows.
"""
