"""From tables to what people look at: one HTML file, the doctor's findings, metrics, a trace.

``drawing/`` makes the page, ``findings/`` is the doctor. ``metrics`` (Prometheus) and ``trace``
(Perfetto) write for other programs. ``reading`` reads tables, ``views`` gathers what the page and
the trace show of one group, and ``names`` makes names from a cluster safe to print.

This package needs pyarrow and no Spark.
"""
