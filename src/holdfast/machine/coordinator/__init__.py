"""Kafka's classic group coordinator.

``coordinator`` takes requests. ``group_data`` is the group's state as a plain record,
``group_members`` reads and changes its members, ``joins`` takes JoinGroup, ``rounds`` are the
rounds.
``group_messages`` are its messages, ``group_log`` its records and their replay.
"""
