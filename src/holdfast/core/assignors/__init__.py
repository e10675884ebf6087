"""Assignors: pure functions from a group to an assignment, over columns.

``registry`` lists every assignor with its traits, checks its options and runs it.

Each row of the registry names a function, and the function's module is the assignor. Assignors
share ``claims`` (which claim counts) and ``subscribers`` (the subscribers of each topic).
``result`` is the outcome of an assignor, ``certificate`` proves that it is optimal, and ``rounds``
follows a group over cooperative rounds.

``own`` makes an assignor from a user's function, and ``own_plan`` calls the function and checks its
plan. ``laws`` has the laws that assignors are checked against.

``optimal/`` holds the searches and the closed form.
"""
