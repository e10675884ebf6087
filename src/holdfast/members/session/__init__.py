"""The session of a member: what every member does, whatever client fetches for it.

``session`` connects the others; ``membership`` starts and ends a member, ``subscription_state`` and
``commits`` say what may be committed and commit it. ``poll_session`` and ``async_session`` are for
the two kinds of clients. ``client_adapter`` is the interface of a client, with the records in
flight and the request for start offsets.
"""
