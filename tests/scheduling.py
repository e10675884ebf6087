"""Which worker of a run takes which tests."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling


class OnceEach(LoadGroupScheduling):
    """Groups of tests, of which none runs again after its worker crashed.

    xdist gives a crashed worker's group to the next one, with the test that crashed: one that
    never ends would end all workers, one after the other.
    """

    def remove_node(self, node: Any) -> str | None:
        """Return the test that ran when a worker ended, if it ended early."""
        units = self.assigned_work[node].values()
        running = [(unit, name) for unit in units for name, is_done in unit.items() if not is_done]
        for unit, name in running[:1]:
            unit[name] = True
        super().remove_node(node)
        return running[0][1] if running else None


class WholeFiles(OnceEach):
    """The same for `make test`: each file is a group, unless it belongs to a larger one.

    A worker that gets single tests makes the fixtures of a module that another worker has made,
    and the scheduler looks through thousands of pieces after each test.
    """

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).split("::")[0]
