"""Assignors: pure functions from a group to an assignment, over columns.

``registry`` lists every assignor with its traits, checks its options and runs it, for one round or
for the rounds of a cooperative group. Each row names a function: those of ``sticky``, ``by_topic``
and ``lag_sticky``.

``claims`` decides which claim counts, before any assignor runs. ``result`` is the outcome of an
assignor, and ``certificate`` proves that it is optimal.

``own`` makes an assignor from a user's function, and ``own_plan`` calls the function and checks its
plan. ``laws`` has the laws that assignors are checked against.

``optimal/`` holds the searches and the closed form.
"""
