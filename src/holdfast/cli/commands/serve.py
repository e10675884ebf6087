"""``holdfast serve``: a fleet in the browser, from a cluster or from tables."""

from __future__ import annotations

import os
import re
import secrets
import signal
import stat
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.option_values import above_zero_s, window_begin
from holdfast.cli.output import print_error, print_note
from holdfast.cli.sources import load_arrow
from holdfast.core.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.cli.updater import Updater, WatchTask
    from holdfast.fleet.analysis.times import Since
    from holdfast.fleet.report.serving.served_fleet import ServedFleet
    from holdfast.fleet.tables.storage.paths import StoragePath

LISTEN = "127.0.0.1:9318"
EVERY = "10s"
BATCH_RECORDS = 2_000_000
"""Of the first read, so many are shown at a time."""
LEAST_TOKEN = 16
_OPEN = "; every user of this computer may read it: --token-file keeps others out"
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

EXAMPLES = """\b
Examples:
  holdfast serve -b localhost:9092
  holdfast serve -b localhost:9092 -o tables --listen 127.0.0.1:8080
  holdfast serve --input tables --listen 0.0.0.0:9318 --token-file token
"""


def run(
    *,
    bootstrap: options.Bootstrap = None,
    source: options.WatchedTables = None,
    output: options.TablesFolder = None,
    listen: Annotated[
        str, Option("--listen", metavar="HOST:PORT", help="Address to serve on.")
    ] = LISTEN,
    token_file: Annotated[
        Path | None,
        Option(
            "--token-file",
            help="File (mode 600 or 640) with the token that clients must send; "
            "default: a random token if one is needed.",
        ),
    ] = None,
    every: Annotated[str, Option("--every", metavar="DURATION", help="Poll interval.")] = EVERY,
    since: options.RecentSince = None,
    client_ids: Annotated[
        bool,
        Option(
            "--client-id-label",
            help="Label lags in /metrics with the client id of the partition's owner.",
        ),
    ] = False,
    watch_options: options.WatchOptions,
    quiet: options.Quiet = False,
) -> None:
    """Show a cluster in the browser: a list of groups, a page for each, /metrics.

    With -b it writes the history of every group, as `holdfast watch` does, to a folder (-o, or one
    for each cluster in your state directory), and pages follow the newest batch. With --input it
    follows tables that another process writes. Joins no group. Other computers need a token.
    """
    host, port = listen_address(listen)
    token = read_token(token_file)
    begin = window_begin(since, options.SINCE_OF_NOW if bootstrap else None)
    if bootstrap is None:
        fleet, updater = tables_of_others(source, begin, client_ids=client_ids), None
    elif source is not None:
        raise ConfigError("give either -b HOST:PORT, a live cluster, or --input PATH, its tables")
    else:
        from holdfast.cli.updater import WatchTask

        task = WatchTask(
            bootstrap=bootstrap,
            output=output or state_folder(bootstrap, watch_options),
            watch_options=watch_options,
            every_seconds=above_zero_s(every, "--every"),
            max_records=BATCH_RECORDS,
            since=since or options.SINCE_OF_NOW,
        )
        fleet, updater = own_tables(
            task, has_answered=output is None, quiet=quiet, since=begin, client_ids=client_ids
        )
    serve(fleet, updater, host, port, token, quiet=quiet)


def tables_of_others(
    source: StoragePath | None, since: Since | None = None, *, client_ids: bool = False
) -> ServedFleet:
    """Open tables that others write, or that do not change; ConfigError without tables."""
    from holdfast.cli.sources import is_dump
    from holdfast.fleet.report.serving.served_fleet import ServedFleet

    if source is None:
        line = holdfast_line("watch", "-b", SERVERS, "-o", FOLDER)
        raise ConfigError(
            f"give -b HOST:PORT, a live cluster, or --input PATH, tables such as `{line}` writes"
        )
    if is_dump(source):
        line = holdfast_line("history", "--input", str(source), "-o", FOLDER)
        raise ConfigError(f"{source} is a dump: make tables of it (`{line}`)")
    load_arrow()
    return ServedFleet(source, print_error, since=since, client_ids=client_ids)


def own_tables(
    task: WatchTask,
    *,
    has_answered: bool,
    quiet: bool,
    since: Since | None = None,
    client_ids: bool = False,
) -> tuple[ServedFleet, Updater]:
    """Return tables that this process updates, and their started updater.

    ``has_answered``: whether the cluster is known to answer; it must if the folder is empty.
    """
    from holdfast.cli.updater import Updater

    task.check_words()
    if not has_answered:
        from holdfast.fleet.tables.folder.manifest import has_manifest

        if not has_manifest(task.output):
            task.cluster().check()
    updater = Updater(task, print_error, quiet=quiet)
    updater.start()  # what its process imports, and what pages need, is read side by side
    try:
        load_arrow()
        from holdfast.cli.live_groups import GroupStatePoller, live_lag
        from holdfast.fleet.report.serving.live import NOW_S
        from holdfast.fleet.report.serving.served_fleet import ServedFleet

        watch_options = task.watch_options
        query = partial(
            live_lag,
            task.cluster(),
            watch_options.group or (),
            all_groups=watch_options.all_groups,
            reset=str(watch_options.reset),
            note=lambda _: None,
        )
        states = GroupStatePoller(
            task.cluster(),
            watch_options.group or (),
            all_groups=watch_options.all_groups,
            note=print_error,
        )
        fleet = ServedFleet(
            task.output,
            print_error,
            updater_state=lambda: updater.updater_state,
            query=query,
            servers=task.bootstrap,
            since=since,
            query_now=states.query,
            every_s=task.every_seconds or NOW_S,
            client_ids=client_ids,
        )
    except BaseException:
        updater.close()
        raise
    return fleet, updater


def state_folder(bootstrap: str, watch_options: options.WatchOptions) -> Path:
    """Return the folder of a cluster in the user's state directory; its first writer creates it.

    Raise SourceError if the cluster does not answer, ConfigError if its id cannot name a folder.
    """
    from holdfast.cli.histories import live_cluster

    cluster = live_cluster(bootstrap, watch_options.command_config, watch_options.timeout)
    cluster.check()
    cluster_id = cluster.cluster_id()
    if not _CLUSTER_ID.match(cluster_id):
        raise ConfigError(
            f"the cluster's id {cluster_id!r} cannot name a folder: give a folder (-o)"
        )
    named = os.environ.get("XDG_STATE_HOME", "")  # XDG base directory specification
    base = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
    return base / "holdfast" / cluster_id


def serve(
    fleet: ServedFleet, updater: Updater | None, host: str, port: int, token: str, *, quiet: bool
) -> None:
    """Answer requests until the process must end, and end the updater with it.

    ``token`` is the token of ``--token-file``; empty without the option.
    """
    from holdfast.fleet.report.serving.application import ServedPages
    from holdfast.fleet.report.serving.server import PageServer, is_loopback, listen_on

    with ExitStack() as closing:
        closing.callback(fleet.close)
        if updater is not None:
            closing.callback(updater.close)
        listener = closing.enter_context(listen_on(host, port))
        is_local = is_loopback(str(listener.getsockname()[0]))
        needed = token or ("" if is_local else secrets.token_urlsafe(24))
        pages = ServedPages(fleet, is_local=is_local, token=needed)
        server = PageServer(listener, pages, print_error)
        closing.callback(server.close)
        if needed and not token:
            print_note(f"serving http://{server.address}/?token={needed} until Ctrl-C")
        elif not quiet:
            print_note(f"serving http://{server.address}/ until Ctrl-C{'' if token else _OPEN}")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # a service that is stopped is well
        fleet.start()
        server.run()


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of ``--listen HOST:PORT``, IPv6 in brackets; else raise ConfigError."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    good = bare and (":" not in bare or bare != host) and port.isdecimal() and port.isascii()
    if not good or int(port) > 65535:
        raise ConfigError(
            f"--listen {text}: expected HOST:PORT, such as {LISTEN} or "
            f"[::1]:{LISTEN.rpartition(':')[2]}"
        )
    return bare, int(port)


def read_token(file: Path | None) -> str:
    """Return the token in a file, stripped; empty without a file.

    Raise ConfigError if it is too short, or no header can carry it, or other users may read it.
    """
    if file is None:
        return ""
    if file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        raise ConfigError(f"{file}: other users may read or write it: chmod 600 {file}")
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{file}: a token has {LEAST_TOKEN} characters or more, all ASCII, without spaces; "
            "`openssl rand -hex 24` makes one"
        )
    return token
