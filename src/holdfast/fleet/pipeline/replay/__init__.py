"""What another policy would have cost.

``rows`` reads a history, in which it turns connectors, tasks and resources of workers into
partitions of kinds; ``trace`` makes a story of it (``events`` is its form). ``settings`` says
what members offer. ``session`` plays one session in a world
(``kip848`` in the model of a KIP-848 group), and ``run`` all groups under all settings.
"""
