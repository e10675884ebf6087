"""The page: one HTML file.

``identity`` and ``timeline`` (ownership), ``history`` (rebalances, moves), ``sections``,
``lag_section``, ``policies`` and ``body`` (HTML), ``packing`` (columns for the page), ``page/``
(script and style), ``writing`` (the file), ``markup`` (escaping), ``palette``.
"""
