"""What a table is: no file is read or written here.

``definition`` is what a table and a column are. ``stored`` defines the tables that a run keeps,
``dumped`` the parts of a dump, ``answers`` the rows that a plan or a replay prints, ``steps`` the
rows that one step of the pipeline hands to another. ``schemas`` finds a definition by its name and
makes its Arrow schema, and ``names`` are the names of files. ``holdable`` refuses values that a
column cannot have. ``chosen`` says which groups a user means, and ``values`` turns Arrow columns
into NumPy columns, and cuts a table by group.
"""
