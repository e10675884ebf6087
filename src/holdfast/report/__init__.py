"""From tables to what people look at: one HTML file, the doctor's findings, metrics, a trace.

``drawing/`` makes the page, ``findings/`` is the doctor. ``metrics`` (Prometheus) and ``trace``
(Perfetto) write for other programs. ``views`` gathers what the page and the trace show of one
group, ``names`` makes names from a cluster safe to print, and ``progress`` is how a caller follows
the work.

This package needs pyarrow and no Spark.
"""
