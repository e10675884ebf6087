"""What every member of ours does, with no client in it.

``session`` joins the parts; ``membership`` and ``opening`` are a member's way in and out,
``subscription_state`` and ``commits`` what may be committed and how, ``in_flight`` what the
application has not processed, and ``starts`` asks where partitions begin. ``in_poll`` and
``on_loop`` are the two places where a client works. ``adapter`` is what a client brings.
"""
