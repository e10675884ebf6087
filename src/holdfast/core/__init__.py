"""The core: groups, their assignments, their bytes, and the machines; NumPy alone.

No module reads a clock, a file, a socket, the environment or chance. Errors are in
:mod:`holdfast.errors`.

================= =================================================================
``machine/``      members, leaders, coordinators, designs: events in, actions out
``kinds/``        one row a kind of group
``assignors/``    who gets what, with proofs; one row an assignor
``wire/``         Kafka's messages and records, and ours in them
``model/``        groups, topics, assignments, and every number we report
``command_lines`` command lines that holdfast suggests
``names``         names of strangers as text that harms nobody
================= =================================================================
"""
