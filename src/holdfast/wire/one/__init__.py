"""One value at a time: ``codec`` is the door to ``reader``, ``writer`` and ``reasons``.

``offsets_records`` reads and writes one record of the offsets topic, ``structs`` an array of
structs in it.
"""
