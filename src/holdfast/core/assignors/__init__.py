"""Assignors: pure functions from a group to an assignment, over columns.

``registry`` lists every assignor with its traits and runs it; ``options`` checks its options.

Each row of the registry names a function, and the function's module is the assignor. Assignors
share ``claims`` (which claim counts), ``subscribers`` (the subscribers of each topic) and
``ranking`` (members ordered by a number). ``result`` is the outcome of an assignor, ``certificate``
proves that it is optimal, and ``rounds`` follows a group over cooperative rounds.

``own`` makes an assignor of a function of the user, ``own_plan`` is what the function is given and
the check of what it returns, and ``laws`` are what any assignor can be held to.

``optimal/`` holds the searches and the closed form.
"""
