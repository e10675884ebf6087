"""Every interleaving of a small world: ``search`` walks through ``small_world``.

``small_state`` says what its states are made of, ``canonical`` which of them are alike.
"""
