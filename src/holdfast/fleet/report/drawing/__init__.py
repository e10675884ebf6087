"""The page: one HTML file.

``writing`` makes the file of ``body`` (HTML), whose parts are ``sections``, ``lag_section``,
``readers_section`` and ``policies`` over ``words`` (sentences and small pictures), and of
``packing`` (columns for the script). ``document`` is the whole page with its policy. ``markup``
escapes, ``palette`` has the colours, and ``page/`` is the script and the style.
"""
