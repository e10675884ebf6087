"""How far every group is behind.

``spark-submit --py-files holdfast.whl jobs/lag.py DUMP OUT [latest|earliest]`` writes every table
to OUT and prints the largest sums, one group a line.
"""

from __future__ import annotations

import sys

from holdfast.pipeline.history.history import run
from holdfast.pipeline.session import get_session

dump, out, *reset = sys.argv[1:4]
made = run(get_session(), dump, out, auto_offset_reset=reset[0] if reset else "latest")
sums = made.table("lag").group_by("group").aggregate([("lag", "sum")])
for row in (
    sums.sort_by([("lag_sum", "descending"), ("group", "ascending")]).slice(0, 20).to_pylist()
):
    sys.stdout.write(f"{row['lag_sum']}\t{row['group']!r}\n")
