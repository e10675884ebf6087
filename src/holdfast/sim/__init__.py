"""A world for the machines, drawn from one seed: measured, broken on purpose, searched in full.

=====================================  =========================================================
``world``, ``network``, ``process``    virtual time, messages, members
``application``, ``connections``       the program around a member; requests and answers
``costs``, ``ledger``                  what things cost, and what was measured
``scenarios``, ``pages``               the document's scenarios; the pages made from them
``kip848``, ``connect``                baselines
``checkers``                           the rules; with ``seen``, ``pacing`` and ``waiting``
``soak``                               random faults, then quiet
``faultbook``, ``fault_scripts``       fault scenarios by number, as scripts for any policy
``scenes``, ``scene``, ``scenes_*``    those with a world of their own
``search``, ``small_world``            every interleaving of a small world
``small_state``, ``canonical``         what its states are made of, and which are alike
``rounds``                             a group played by hand
=====================================  =========================================================
"""
