"""From tables to output: one HTML file, the doctor's findings, metrics.

``columns/`` turns a group's tables into columns. ``findings/``, the doctor, works on these
columns; ``drawing/`` makes the page of columns and findings; ``serving/`` serves such pages of a
whole fleet to a browser. ``metrics`` writes text for Prometheus.

This package needs pyarrow and no Spark.
"""
