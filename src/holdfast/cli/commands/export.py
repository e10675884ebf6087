"""``holdfast export``: Prometheus metrics of a fleet, from tables that ``watch`` keeps."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import Groups, OutputFile, Quiet
from holdfast.cli.output import print_error, print_note, track, write_text
from holdfast.errors import AdapterError, ConfigError, HoldfastError

if TYPE_CHECKING:
    from holdfast.report.progress import Track

EXAMPLES = """\b
Examples:
  holdfast export --input tables
  holdfast export --input tables --listen 0.0.0.0:9308
  holdfast export --input tables --once
  holdfast export --dashboard -o holdfast.json
"""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def run(
    *,
    source: Annotated[
        Path | None,
        typer.Option("--input", help="Folder of tables, read anew when its manifest changes."),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to serve /metrics.")
    ] = "127.0.0.1:9308",
    group: Groups = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the metrics and stop (for a textfile collector).")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print the Grafana dashboard and stop.")
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
        raise ConfigError("give --input PATH, a folder of tables that `holdfast watch` writes")
    metrics = Metrics(source, group, track=lambda n: track(n, len(n), "groups", quiet=quiet))
    text = metrics.text()
    if once:
        write_text(text, output)
        return
    host, port = _address(listen)
    with serve(metrics.text, host, port) as server:
        if not quiet:
            address = f"{server.server_address[0]!s}:{server.server_address[1]}"
            print_note(f"serving http://{address}/metrics until Ctrl-C")
        server.serve_forever()


def dashboard_text() -> str:
    """The Grafana dashboard."""
    return files("holdfast.report").joinpath("grafana.json").read_text(encoding="utf-8")


class Metrics:
    """Text of the metrics of a folder, made anew when the folder's tables have changed."""

    def __init__(self, folder: Path, groups: list[str] | None = None, *, track: Track = iter):
        self._folder, self._groups, self._track = folder, groups, track
        self._seen: object = None
        self._text = ""
        self._lock = threading.Lock()

    def text(self) -> str:
        """Text as of now."""
        from holdfast.report.findings.doctor import examine_fleet
        from holdfast.report.metrics import exposition
        from holdfast.tables.manifest import stamp
        from holdfast.tables.reading import read_tables

        with self._lock:
            held = stamp(self._folder)
            if held != self._seen:
                tables = read_tables(self._folder)
                asked = tables.choose(self._groups)
                found = examine_fleet(tables, asked, track=self._track)
                self._text, self._seen = exposition(tables, found), held
            return self._text


def write_metrics(folder: Path, target: Path) -> None:
    """Write the text that ``holdfast export`` serves to a file, which a rename replaces at once."""
    text = Metrics(folder).text()
    draft = target.with_name(f"{target.name}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(target)


class _MetricsServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print one line about a failed request; none if the scraper closed the connection."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            print_error(f"request of {client_address[0]}: {type(error).__name__}: {error}")


def serve(text: Callable[[], str], host: str, port: int) -> ThreadingHTTPServer:
    """A server of ``/metrics``, not yet running.

    Raises
    ------
    AdapterError
        If the address cannot be had.
    """

    class Handler(BaseHTTPRequestHandler):
        server_version = "holdfast"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/metrics":
                self._send(404, "see /metrics\n")
                return
            try:
                self._send(200, text())
            except HoldfastError as error:
                print_error(str(error))
                self._send(503, "the tables cannot be read at the moment\n")

        def _send(self, status: int, body: str) -> None:
            data = body.encode("utf-8")
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            del format, args

    try:
        return _MetricsServer((host, port), Handler)
    except OSError as error:
        raise AdapterError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--listen {listen}: expected HOST:PORT, such as 127.0.0.1:9308")
    return host.strip("[]"), int(port)
