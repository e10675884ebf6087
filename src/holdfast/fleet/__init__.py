"""The fleet: what the offsets topic says of all groups, kept as tables and shown.

================= =================================================================
``pipeline/``     records of the offsets topic to tables; history, lag, plan, replay
``report/``       findings, drawings, metrics, and served pages
``tables/``       folders of tables: columns, what belongs together, where it lies
================= =================================================================
"""
