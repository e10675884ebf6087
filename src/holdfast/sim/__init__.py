"""A world for the machines, drawn from one seed: what ``holdfast simulate`` measures.

``scenarios`` has the document's scenarios and plays the scenario of a file. Random faults and the
search of every order of events stand with the tests (``tests/proof``), and so do the rules of the
protocol, which the tests check in a world.

==============  ====================================================================
``world/``      virtual time, messages, members, costs and what was measured
``baselines/``  KIP-848, for comparison
==============  ====================================================================
"""
