"""The tables: what they are, the folder that holds them, and the one way to read them.

``reading`` is the face for other packages: ``Tables``, and the functions that open them. ``window``
cuts tables by time, and ``journals`` puts the members' own view of pauses in place of the broker's.

=============  ===================================================================
"""
