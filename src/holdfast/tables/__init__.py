"""The tables: their columns, the folder that holds them, and the one way to read them.

``definition`` is what a table and a column are. ``stored`` defines the tables that a run keeps,
``dumped`` the parts of a dump, ``answers`` the rows that a plan or a replay prints, ``steps`` the
rows that one step of the pipeline hands to another. ``schemas`` finds a definition by its name and
makes its Arrow schema.

``manifest`` lists the files that count, ``writing`` writes them, ``reading`` reads them or columns
in memory, ``groups`` cuts a table by group, ``values`` turns Arrow columns into NumPy columns.
"""
