"""From histories of groups and their findings to output: one HTML file, pages, metrics.

``drawing/`` makes the page; ``serving/`` serves such pages of a whole fleet to a browser.
``metrics`` writes text for Prometheus.

This package needs pyarrow and no Spark.
"""
