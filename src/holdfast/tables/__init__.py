"""The tables: their columns, the folder that holds them, and the one way to read them.

``definition`` is what a table and a column are. ``stored`` defines the tables that a run keeps,
``dumped`` the parts of a dump, ``answers`` the rows that a plan or a replay prints, ``steps`` the
rows that one step of the pipeline hands to another. ``schemas`` finds a definition by its name and
makes its Arrow schema.

Each table is a Delta table: ``delta_log`` says which files count in a version of it. ``manifest``
says which versions belong together, ``commits`` makes a batch visible in all of them at once,
``upkeep`` merges small files and drops old rows, ``last_writer`` says which process wrote last, and
``store`` is what these ask of the place where tables are kept; ``remote_store`` answers for S3 and
its like. ``names`` are the names of files. ``folder`` says what may stand in a folder of tables and
sweeps it. ``writing`` writes files, ``parquet`` opens those of strangers, ``reading`` reads tables
or columns in memory, and ``arrow_rows`` brings their rows to the columns of a table. ``groups``
cuts a table by group, ``window`` by time. ``pause_sums`` adds pauses up. ``values`` turns Arrow
columns into NumPy columns. ``private`` makes files and folders for their owner alone.

``places`` turns a user's path or URL into a place, and ``filesystems`` opens the storage behind it.
"""
