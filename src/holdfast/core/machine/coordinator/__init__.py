"""Kafka's classic group coordinator.

``coordinator`` takes requests. ``group_data`` is the group's state as a plain record, with its
members. ``rounds`` takes JoinGroup, and begins and ends rounds. ``group_messages`` has the
messages, the records and their replay.
"""
