"""A world for the machines, drawn from one seed: measured, broken on purpose, searched in full.

``scenarios`` has the document's scenarios and those of a file; ``soak`` has random faults, then a
quiet phase in which the group must settle.

==============  ====================================================================
``world/``      virtual time, messages, members, costs and what was measured
``rules/``      the rules, checked as a run goes on
``search/``     every interleaving of a small world
``baselines/``  KIP-848 and Connect, for comparison
==============  ====================================================================
"""
