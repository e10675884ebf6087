"""The ``holdfast`` command: ``app`` starts it, and each file of ``commands/`` is one command.

``output`` and ``screen`` print, ``streams`` are the standard streams that they print to.
``declared`` makes Click's commands of functions; ``options``, ``assignor_options`` (assignors and
designs, the user's own included), ``durations`` and ``settings`` read the user's choices;
``suggestions`` explains a wrong option. ``watch_loop`` updates the tables of a cluster, and
``updater`` does so for served pages. ``sources`` opens tables, dumps and clusters,
``printed_texts`` the output of Kafka's own tools, and ``histories`` makes a history of them for a
command. ``live_lag`` makes rows of the coordinators' answers, and ``live_states`` queries them for
the present states of groups. ``spark_progress`` shows the progress of Spark, and ``arrow`` loads
Arrow without pandas. ``wire_json`` is a part of decode, ``simulation_files`` and
``simulation_picture`` are parts of simulate.
``demo/`` runs the demo on a broker of its own.
"""
