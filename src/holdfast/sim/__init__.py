"""A world for the machines, drawn from one seed: measured, broken on purpose, searched in full.

``scenarios`` are the document's; ``soak`` is random faults, then quiet; ``faultbook`` numbers fault
scenarios, ``fault_scripts`` are those for any policy, ``scenes``, ``scene``, ``scenes_*`` those
with a world of their own; ``rounds`` is a group played by hand; ``pages`` writes docs.

==============  ====================================================================
``world/``      virtual time, messages, members, costs and what was measured
``rules/``      the rules, checked as a run goes on
``search/``     every interleaving of a small world
``baselines/``  KIP-848 and Connect, for comparison
==============  ====================================================================
"""
