"""A world for the machines, drawn from one seed, measured by ``holdfast simulate``.

``scenarios`` has the document's scenarios and plays the scenario of a file. Random faults and the
search of every order of events are in the tests (``tests/proof``), and so are the rules of the
protocol, which the tests check in a world.

==============  ====================================================================
``world/``      virtual time, messages, members, costs and measurements
``baselines/``  KIP-848, for comparison
==============  ====================================================================
"""
