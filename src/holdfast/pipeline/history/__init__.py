"""What groups went through, as columns.

``history`` is the command's door. ``generations``, ``consumer_groups`` and ``reconciled`` are the
group records of each protocol, ``dense`` numbers their names; ``movements`` is what moved,
``needed`` whether it had to, ``rebalances`` why, ``broker_log`` causes that a broker states;
``pauses`` is what stood still, ``lag`` how far groups are behind.
"""
