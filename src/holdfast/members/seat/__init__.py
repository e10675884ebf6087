"""What every member of ours does, with no client in it.

``seat`` joins the parts; ``membership`` and ``opening`` are a member's way in and out, ``progress``
and ``commits`` what may be committed and how, ``in_hand`` what the application has not processed,
and ``starts`` asks where partitions begin. ``in_poll`` and ``on_loop`` are the two places where a
client works. ``hands`` is what a client brings.
"""
