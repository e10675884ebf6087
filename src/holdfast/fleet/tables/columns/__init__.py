"""Definitions of tables: no file is read or written here.

``definition`` has the classes of tables and columns. ``stored`` defines the tables of a folder,
``steps`` rows that no folder holds: parts of a dump, rows that one step of the pipeline passes to
another, and those that a plan or a replay prints. ``schemas`` finds a definition by its name, makes
its Arrow schema, and refuses values that a column cannot contain.
"""
