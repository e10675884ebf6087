"""The tables: what they are, the folder that holds them, and the one way to read them.

``reading`` is the face for other packages: ``Tables``, and the functions that open them. ``window``
cuts tables by time.

=============  ==========================================================================
``columns/``   what a table is: columns, types, names, values; reads no file
``folder/``    which files count, which versions belong together, who commits, upkeep
``storage/``   places, and the disk or the store behind each of them; Parquet of strangers
=============  ==========================================================================
"""
