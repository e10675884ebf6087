"""The ``holdfast`` command: ``app`` joins one module per command, named as the command is.

``commands/`` has them. What they share: ``output``, ``people`` and ``screen`` print; ``options``,
``durations`` and ``settings`` read what people give; ``sources`` and ``fleet_tables`` open what
commands look at; ``spark_progress`` shows how far Spark is; ``wire_json`` is what ``decode`` and
``encode`` share.
"""
