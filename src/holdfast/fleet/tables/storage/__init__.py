"""Where files stand: it knows nothing of tables.

``places`` turns a user's path or URL into a place, and finds its store. ``store`` is what is asked
of any place, ``disk`` and ``remote`` are the answers. ``clients`` opens stores of a network, and
``sent`` keeps what this process has sent to them. ``parquet`` opens files and reads them in pieces.
``private`` makes files and folders for their owner alone.
"""
