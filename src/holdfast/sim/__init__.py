"""A world for the machines, drawn from one seed: what ``holdfast simulate`` measures.

``scenarios`` has the document's scenarios and plays the scenario of a file. Random faults and the
search of every order of events stand with the tests (``tests/proof``).

==============  ====================================================================
``world/``      virtual time, messages, members, costs and what was measured
``rules/``      the rules, checked as a run goes on
``baselines/``  KIP-848 and Connect, for comparison
==============  ====================================================================
"""
