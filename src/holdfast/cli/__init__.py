"""The ``holdfast`` command: ``app`` starts it, and each file of ``commands/`` is one command.

``output`` and ``screen`` print, ``streams`` are the standard streams that they print to.
``declared`` makes Click's commands of functions; ``options``, ``design_options``, ``durations`` and
``settings`` read the user's choices, and ``meant`` says what a wrong option may stand for.
``watching`` keeps the tables of a cluster, and ``updater``
does so for served pages. ``sources`` opens tables, dumps and clusters, ``printed_texts`` what
Kafka's own tools printed, and ``histories`` makes a history of them for a command;
``live_lag`` makes rows of what coordinators answer,
``state_poller`` asks them what groups do now, and ``parse_assignor`` finds the user's own
assignor. ``meant`` says what a person most likely meant. ``spark_progress`` shows how far Spark is,
and ``arrow`` loads Arrow without pandas.
``wire_json`` is a part of decode; ``scenario_files`` and ``simulation_dump`` are parts of simulate.
``demo/`` is the main job, on a broker of its own.
"""
