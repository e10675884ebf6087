"""Kafka's classic group coordinator.

``coordinator`` takes requests. ``group_data`` is the group's state as a plain record.
``group_members`` reads and changes members, ``joins`` takes JoinGroup, ``rounds`` begins and ends
rounds. ``group_messages`` has the messages, ``group_log`` the records and their replay.
"""
