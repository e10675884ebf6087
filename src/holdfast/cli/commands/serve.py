"""``holdfast serve``: a fleet in the browser, from tables that ``watch`` keeps."""

from __future__ import annotations

import logging
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.declared import Option
from holdfast.cli.kept_tables import is_dump
from holdfast.cli.options import KeptTables, Quiet
from holdfast.cli.output import print_error, print_note
from holdfast.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.errors import ConfigError
from holdfast.report.serving.hosts import (
    cannot_listen,
    is_loopback,
    listen_address,
    shown_address,
    socket_address,
    take_both_kinds,
)

if TYPE_CHECKING:
    from holdfast.report.serving.served_fleet import ServedFleet

LISTEN = "127.0.0.1:9318"
THREADS = 4
MAX_CLIENTS = 64
BACKLOG = 128
IDLE_CLIENT_S = 30
"""A client that neither sends nor takes anything for so long is dropped."""
MAX_REQUEST_BYTES = 65_536
LEAST_TOKEN = 16

EXAMPLES = """\b
Examples:
  holdfast serve --input tables
  holdfast serve --input tables --listen 127.0.0.1:8080
  holdfast serve --input tables --listen 0.0.0.0:9318 --token-file token
"""


def run(
    *,
    source: KeptTables = None,
    listen: Annotated[
        str, Option("--listen", metavar="HOST:PORT", help="Where to serve.")
    ] = LISTEN,
    token_file: Annotated[
        Path | None,
        Option(
            "--token-file",
            help="File with the token that clients must know; made up anew where one is needed.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Serve a fleet to a browser: every group in one list, a page for each, and /metrics.

    Reads tables only: no broker is asked and nothing is written. The pages follow what `holdfast
    watch` writes. Other computers may ask only with a token.
    """
    if source is None:
        line = holdfast_line("watch", "-b", SERVERS, "-o", FOLDER)
        raise ConfigError(f"give --input PATH, a folder of tables such as `{line}` writes")
    if is_dump(source):
        line = holdfast_line("history", "--input", str(source), "-o", FOLDER)
        raise ConfigError(f"{source} is a dump: make tables of it (`{line}`)")
    from holdfast.report.serving.application import ServedPages
    from holdfast.report.serving.served_fleet import ServedFleet

    host, port = listen_address(listen, LISTEN)
    token = read_token(token_file)
    fleet = ServedFleet(source, print_error)
    with listening(host, port) as taken:
        address = taken.getsockname()
        is_local = is_loopback(str(address[0]))
        token = token or ("" if is_local else secrets.token_urlsafe(24))
        url = f"http://{shown_address(str(address[0]), int(address[1]))}/"
        if token and token_file is None:
            print_note(f"serving {url}?token={token} until Ctrl-C")
        elif not quiet:
            print_note(f"serving {url} until Ctrl-C")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # a service that is stopped is well
        fleet.start()
        answer_requests(ServedPages(fleet, is_local=is_local, token=token), taken, fleet)


def read_token(file: Path | None) -> str:
    """The token in a file, without the space around it; empty without a file.

    Raises
    ------
    ConfigError
        It is too short, or is none that a header can carry.
    """
    if file is None:
        return ""
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{file}: a token has {LEAST_TOKEN} characters or more, all of ASCII and no space; "
            "`openssl rand -hex 24` makes one"
        )
    return token


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on an address.

    Raises
    ------
    AdapterError
        If the address cannot be had.
    """
    try:
        family, address = socket_address(host, port)
        taken = socket.socket(family, socket.SOCK_STREAM)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            take_both_kinds(taken)
            taken.bind(address)
            taken.listen(BACKLOG)
        except OSError:
            taken.close()
            raise
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    return taken


def answer_requests(pages: Any, taken: socket.socket, fleet: ServedFleet) -> None:
    """Answer requests until the process is told to end."""
    import waitress

    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a busy moment is no news
    server = waitress.create_server(
        pages,
        sockets=[taken],
        threads=THREADS,
        connection_limit=MAX_CLIENTS,
        channel_timeout=IDLE_CLIENT_S,
        cleanup_interval=5,
        max_request_header_size=MAX_REQUEST_BYTES,
        max_request_body_size=MAX_REQUEST_BYTES,
        ident=None,
        clear_untrusted_proxy_headers=True,
    )
    try:
        server.run()
    finally:
        fleet.close()
        server.close()
