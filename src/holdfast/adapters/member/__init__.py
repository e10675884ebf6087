"""One member put together, whatever it owns.

``assembly`` joins the parts; ``host`` runs the machine on a thread of its own and ``mailbox`` is
its queue; ``membership`` is what the machine asks for, ``link`` turns that into requests and
answers. ``metrics`` counts, ``member_log`` logs.
"""
