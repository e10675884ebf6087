"""Group to assignment, as pure functions over columns.

``registry`` is the only list of assignors, with their traits, and the one way to run one;
``options`` checks what they are given.

An assignor is a module: ``range``, ``roundrobin``, ``fair``, ``sticky``, ``constrained``, ``lag``,
``lag_sticky``. What they share: ``claims`` (claims under the rules), ``subscribers`` and
``ranking`` (who may own what, and in which order), ``result`` (what comes out), ``certificate``
(the proof that it is optimal) and ``rounds`` (cooperative rounds until nothing is withheld).

``optimal/`` finds the optimum.
"""
