"""Kafka's classic group coordinator.

``coordinator`` takes requests; ``group_table`` is its group, ``group_messages`` its messages,
``group_log`` its records and their replay.
"""
