"""Group to assignment, as pure functions over columns.

``registry`` is the only list of assignors, with their traits, and the one way to run one;
``options`` checks what they are given.

Each row of the registry names a function, and the function's module is the assignor. Assignors
share ``claims`` (claims under the rules), ``subscribers`` and ``ranking`` (which members may own a
topic, and in which order), ``result`` (an assignor's answer), ``certificate`` (the proof that the
answer is optimal) and ``rounds`` (cooperative rounds until nothing is withheld).

``optimal/`` finds the optimum.
"""
