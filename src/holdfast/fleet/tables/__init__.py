"""The tables: their definitions, their folder, and the one way to read them.

``reading`` is the interface for other packages: ``Tables``, and the functions that open them.

=============  ==========================================================================
``columns/``   definitions: columns, types, values; reads no file
``folder/``    the manifest, Delta logs, snapshots, commits, maintenance
``storage/``   storage paths and file systems, local or remote; Parquet files
=============  ==========================================================================
"""
