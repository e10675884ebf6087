"""A cluster: settings and logins, connections, requests and diagnosis.

``connections`` wraps kafka-python's network layer, ``versions`` has those of requests and clients,
``kafka_python_repairs`` closes the sockets that the layer leaves open and reads last answers, and
``signal_safe`` has the futures. ``diagnosis`` finds why a cluster does not answer. ``lookup`` (for
a member) and ``cluster`` (for the command line) query topics and offsets, ``first_unread`` the
first unread record of a partition, and ``groups`` the groups of coordinators, by requests that
``group_messages`` builds and reads; ``messages/`` describes those that kafka-python lacks.
``groups_now`` combines their answers in the classes of ``snapshot``, which also has what a dump
keeps of a cluster.

``settings`` holds the settings of connections and reads files of them; ``client_configs`` converts
them for each client library and keeps logins out of the libraries' logs. ``credentials`` reads
logins and TLS in the spelling of any client: ``keystores`` reads those of Java, and ``tokens``
fetches, keeps and renews tokens of an endpoint or of Amazon MSK. ``kerberos`` logs in by Kerberos.
"""
