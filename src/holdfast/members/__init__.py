"""Group members on real brokers, over Kafka's client libraries.

``consumer`` is the member for topics (``holdfast.Consumer``), and ``consumer_arguments`` checks the
arguments of its calls. ``worker`` is the member for other resources (``holdfast.Worker``).
``metrics`` has the counters of a member.

============== ====================================================================
``config/``    what a user gives a member: own assignors, functions with a deadline
``session/``   what every member does, whatever client fetches for it
``runtime/``   one running member: its thread, its requests and their answers
``resources/`` the work on a worker's resources: starting, ending, restarting it
``clients/``   the consumers of other clients over a member of holdfast, and the
               assignors for the clients' own consumers
============== ====================================================================
"""
