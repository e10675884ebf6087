"""A cluster: logins and settings, connections, questions to it; and one on this machine.

``connections`` wraps kafka-python's network layer, ``versions`` says in which version a request is
sent, ``refused`` closes the sockets that the layer leaves open and reads last answers, ``answers``
has the futures. ``diagnosis`` says why a cluster does not answer. ``lookup`` (for a member) and
``cluster`` (for the command line) ask for topics and offsets, ``first_unread`` for the first unread
record of a partition, with ``record_times`` where no record may be read, ``groups`` for what
coordinators know of groups, in requests of kafka-python and of
``messages/``, which ``group_messages`` makes and reads; ``groups_now`` puts the answers about
positions together, ``states_now`` those about states as ``seen_groups`` has them. ``snapshot`` is
what a dump keeps of a cluster. ``broker/`` starts a real Kafka of any version.

``settings`` holds the configuration of a member, ``properties`` reads files of it, and ``render``
spells it for each client library. ``credentials`` reads logins and TLS in the spelling of any
client, and ``login_log`` keeps logins out of the clients' logs. ``client_keys`` says what becomes
of every other key of a client, ``client_versions`` which versions of the clients are needed.
"""
