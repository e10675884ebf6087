"""The text of ``/metrics`` of very many groups, in a temporary file.

**Rules.** The samples of a metric are together, as its format requires, so each metric is collected
in a file of its own first. Groups are in the order of their names. The memory does not grow with
the groups.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, Final

from holdfast.core.command_lines import NOT_KNOWN
from holdfast.fleet.analysis.findings.doctor import stored_findings
from holdfast.fleet.report.metric_columns import samples_of
from holdfast.fleet.report.metrics import Samples, lag_samples, shown_metrics, table_samples
from holdfast.fleet.tables.reading import SomeGroups, Tables

_PIECE_BYTES: Final = 1 << 16
_HEAD: Final = b"# HELP "


class MetricsFile:
    """A complete text, which is deleted with this object."""

    def __init__(self, file: IO[bytes], n_bytes: int):
        self._file, self.n_bytes = file, n_bytes
        weakref.finalize(self, file.close)

    def pieces(self) -> Iterator[bytes]:
        """Yield the text; several readers may do so at one time."""
        for at in range(0, self.n_bytes, _PIECE_BYTES):
            yield os.pread(self._file.fileno(), min(_PIECE_BYTES, self.n_bytes - at), at)


def write_metrics(
    tables: Tables, groups: Sequence[str], *, client_ids: bool = False
) -> Iterator[MetricsFile | None]:
    """Write the text of groups whose findings are stored; yield None after each part of them.

    The last value is the file. ``client_ids`` as of
    :func:`~holdfast.fleet.report.metrics.exposition`.
    """
    metrics = shown_metrics(client_ids=client_ids)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(tempfile.TemporaryFile(prefix="holdfast-"))
            for name in metrics
        }
        head = Samples(metrics.values())
        head.add_all(table_samples(tables))
        _append(files, head.text())
        for some in tables.parts(groups):
            _append(files, _part(some, client_ids=client_ids))
            yield None
        yield _joined(list(files.values()))


def _part(some: SomeGroups, *, client_ids: bool) -> bytes:
    samples = Samples(shown_metrics(client_ids=client_ids).values())
    samples.add_all(lag_samples(some.table("lag").rows, client_ids=client_ids))
    samples.add_all(samples_of(some, stored_findings(some, NOT_KNOWN)))
    return samples.text()


def _append(files: dict[str, Any], text: bytes) -> None:
    """Append the samples of each metric to its file; the first one keeps its head."""
    for family in text.split(b"\n" + _HEAD):
        lines = family.removeprefix(_HEAD)
        if lines:
            file = files[lines.split(b" ", 1)[0].decode()]
            samples = lines.split(b"\n", 2)[2] if file.tell() else _HEAD + lines
            file.write(samples.removesuffix(b"\n") + b"\n")


def _joined(files: Sequence[IO[bytes]]) -> MetricsFile:
    whole = tempfile.TemporaryFile(prefix="holdfast-")  # noqa: SIM115 - closed with the object
    for file in files:
        file.seek(0)
        while piece := file.read(_PIECE_BYTES):
            whole.write(piece)
    whole.flush()
    return MetricsFile(whole, whole.tell())
