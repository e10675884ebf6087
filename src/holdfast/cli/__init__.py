"""The ``holdfast`` command: ``app`` starts it, and each file of ``commands/`` is one command.

``output``, ``people`` and ``screen`` print. ``options``, ``durations`` and ``settings`` read what
the user sets. ``sources`` and ``fleet_tables`` open what commands look at. ``spark_progress``
shows how far Spark is. ``decode`` and ``encode`` share ``wire_json``; ``simulate`` uses
``simulate_search`` and ``simulation_dump``.
"""
