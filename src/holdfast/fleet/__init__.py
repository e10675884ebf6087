"""The fleet: records of the offsets topic about all groups, as tables, findings and pages.

================= =================================================================
``pipeline/``     records of the offsets topic to tables; history, lag, plan, replay
``report/``       findings, drawings, metrics, and served pages
``columnar``      columns of Arrow as NumPy arrays, and the rows of each group
``tables/``       folders of tables: columns, transactions, storage
================= =================================================================

``columnar`` has the columns of Arrow tables as NumPy arrays.
"""
