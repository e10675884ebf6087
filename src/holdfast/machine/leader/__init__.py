"""A leader's round, and assignors as members speak them.

``designs`` are the assignors of members: eager, cooperative, Designs I, II and III; ``embedded`` is
the interface they share. ``leader_turn`` is one leader turn, bytes to bytes, without a machine.
``leader`` plans a round of a design: ``subscriptions`` reads the members, ``deferral`` says what
waits for whom, ``targets`` who shall own what.
"""
