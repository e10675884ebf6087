"""Group members on real brokers, over Kafka's client libraries.

``consumer`` is the member for topics (``holdfast.Consumer``), ``worker`` the member for other
resources (``holdfast.Worker``). ``metrics`` has the counters of a member.

============== ====================================================================
``config/``    what a user gives a member: keys, policy, own assignors, arguments of calls
``session/``   what every member does, whatever client fetches for it
``runtime/``   one running member: its thread, its requests and their answers
``resources/`` the work on a worker's resources: starting, ending, restarting it
``clients/``   the consumers of other clients over a member of holdfast, and the
               assignors for the clients' own consumers
============== ====================================================================
"""
