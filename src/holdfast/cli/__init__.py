"""The ``holdfast`` command: ``app`` starts it, and each file of ``commands/`` is one command.

``output``, ``people`` and ``screen`` print. ``options``, ``durations`` and ``settings`` read what
the user sets. ``sources`` opens what commands look at. ``spark_progress`` shows how far Spark is.
``wire_json`` is what decode and encode share; ``scenario_files`` and
``simulation_dump`` are parts of simulate.
"""
