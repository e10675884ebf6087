"""A member of ours in the place of the group coordinator of another client.

``holdfast.aiokafka`` and ``holdfast.kafka`` hand these classes out. Records, errors and positions
stay those of the client.
"""
