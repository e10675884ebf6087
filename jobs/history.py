"""History of every group on a cluster.

``spark-submit --py-files holdfast.whl jobs/history.py DUMP OUT``: both folders must be reachable
under these paths by the driver and by every executor.
"""

from __future__ import annotations

import sys

from holdfast.pipeline.history.history import run
from holdfast.pipeline.session import get_session

dump, out = sys.argv[1:3]
made = run(get_session(), dump, out)
sys.stdout.write(f"{made.n_records} records, {made.tables.rows('rebalances')} rebalances\n")
