"""``holdfast export``: Prometheus metrics of a fleet, from tables that ``watch`` keeps."""

from __future__ import annotations

import signal
import sys
import threading
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.cli.declared import Option
from holdfast.cli.metrics_server import MetricsServer
from holdfast.cli.options import Groups, KeptTables, OutputFile, Quiet
from holdfast.cli.output import print_note, track, write_text
from holdfast.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.errors import ConfigError
from holdfast.report.serving.hosts import listen_address

if TYPE_CHECKING:
    from holdfast.report.progress import Track
    from holdfast.tables.places import Place

LISTEN = "127.0.0.1:9308"

EXAMPLES = """\b
Examples:
  holdfast export --input tables
  holdfast export --input tables --listen 0.0.0.0:9308
  holdfast export --input tables --listen '[::1]:9308'
  holdfast export --input tables --once
  holdfast export --dashboard -o holdfast.json
"""


def run(
    *,
    source: KeptTables = None,
    listen: Annotated[
        str, Option("--listen", metavar="HOST:PORT", help="Where to serve /metrics.")
    ] = LISTEN,
    group: Groups = None,
    once: Annotated[
        bool, Option("--once", help="Print the metrics and stop (for a textfile collector).")
    ] = False,
    dashboard: Annotated[
        bool, Option("--dashboard", help="Print the Grafana dashboard and stop.")
    ] = False,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Serve /metrics: kafka_consumergroup_* as exporters name them, and holdfast_group_*.

    Reads tables only: no broker is asked and no group is joined.
    """
    if dashboard:
        write_text(dashboard_text(), output)
        return
    if source is None:
        line = holdfast_line("watch", "-b", SERVERS, "-o", FOLDER)
        raise ConfigError(f"give --input PATH, a folder of tables such as `{line}` writes")
    metrics = Metrics(source, group, track=lambda n: track(n, len(n), "groups", quiet=quiet))
    text = metrics.text()
    if once:
        write_text(text, output)
        return
    host, port = listen_address(listen, LISTEN)
    with MetricsServer(metrics.text, host, port) as server:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # a service that is stopped is well
        if not quiet:
            print_note(f"serving http://{server.address}/metrics until Ctrl-C")
        server.serve_forever()


def dashboard_text() -> str:
    """The Grafana dashboard."""
    return files("holdfast.report").joinpath("grafana.json").read_text(encoding="utf-8")


class Metrics:
    """Text of the metrics of a folder, made anew when the folder's tables have changed."""

    def __init__(self, folder: Place, groups: list[str] | None = None, *, track: Track = iter):
        self._folder, self._groups, self._track = folder, groups, track
        self._seen: object = None
        self._text = ""
        self._lock = threading.Lock()

    def text(self) -> str:
        """Text as of now."""
        from holdfast.report.findings.doctor import examinations
        from holdfast.report.metrics import exposition
        from holdfast.tables.manifest import stamp
        from holdfast.tables.reading import read_tables

        with self._lock:
            held = stamp(self._folder)
            if held != self._seen:
                tables = read_tables(self._folder)
                asked = tables.choose(self._groups)
                found = examinations(tables, asked, track=self._track)
                self._text, self._seen = exposition(tables, found), held
            return self._text


def write_metrics(folder: Place, target: Path) -> None:
    """Write the text that ``holdfast export`` serves to a file, which a rename replaces at once."""
    text = Metrics(folder).text()
    draft = target.with_name(f"{target.name}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(target)
