"""Where files stand: it knows nothing of tables.

``places`` turns a user's path or URL into a place, and finds its store. ``store`` is what is asked
of any place, ``disk`` and ``remote`` are the answers. ``clients`` opens stores of a network, and
``sent`` keeps what this process has sent to them. ``parquet`` opens the files of strangers:
``plain`` only where they are files, ``footer`` only with a footer that Arrow can live with, and
``pages`` says what they unpack to. ``private`` makes files and folders for their owner alone.
"""
