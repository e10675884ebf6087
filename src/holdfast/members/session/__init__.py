"""The session of a member: what every member does, whatever client fetches for it.

``session`` connects the others; ``membership`` and ``connecting`` start and end a member,
``subscription_state`` and ``commits`` say what may be committed and commit it, ``in_flight`` has
what the application has not processed, and ``start_offsets`` requests where partitions start.
``poll_session`` and ``async_session`` are for the two kinds of clients. ``client_adapter``
is the interface of a client.
"""
