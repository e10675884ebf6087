"""Exhaustive search: every order in which things can happen in a small world.

``search`` walks through the states and says which orders it may leave out. ``small_world`` computes
the steps with the real machines, ``small_state`` is what states are made of, ``canonical`` rewrites
states that behave alike into one.
"""
