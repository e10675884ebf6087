"""The session of a member: what every member does, whatever client fetches for it.

``session`` connects the others, and has the interface of a client's adapter and the request for
start offsets. ``membership`` starts and ends a member, ``subscription_state`` and ``commits`` say
what may be committed and commit it. ``poll_session`` and ``async_session`` are for the two kinds of
clients; ``poll_session`` has the records in flight.
"""
