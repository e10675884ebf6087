"""The ``holdfast`` command: ``app`` starts it, and each file of ``commands/`` is one command.

``output`` prints. ``declared`` makes Click's commands of functions, and explains a wrong option;
``options``, ``option_values`` (durations, moments, assignors) and ``settings`` read the user's
choices. ``updater`` updates the tables of a cluster, also for
served pages. ``sources`` opens tables, dumps, clusters and the output of Kafka's own tools, and
``histories`` makes a history of them for a command. ``live_groups`` asks coordinators for lags and
for the present states of groups. ``spark_progress`` shows the progress of Spark.
``simulation_files`` is a part of simulate. ``demo/`` runs the demo on a broker of its own.
"""
