"""Kafka's classic group coordinator.

``coordinator`` takes requests, ``rebalance`` takes JoinGroup, and begins and ends rebalances.
``group`` has the messages, the records and their replay, and the group's state with its members.
"""
