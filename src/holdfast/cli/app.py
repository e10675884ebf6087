"""The ``holdfast`` command: one Click group, one module per command, one error handler.

**Rules.** Data go to stdout, progress and logs to stderr. A command module imports heavy packages
(Spark, clients) inside its function. Only this module turns an error into an exit code:
0 ok, 1 findings, 2 usage or config, 3 source, 4 infeasible, 70 our bug, 130 Ctrl-C.

A standard stream that the caller closed reads as empty and discards output. Output to stdout
arrives whole, or the command fails.

**Strategy.** Every file of ``cli/commands`` is a command of the same name
(:mod:`holdfast.cli.commands`). Running a command imports its module alone, ``--help`` none.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from holdfast import __version__
from holdfast.cli.declared import CONTEXT, command_of
from holdfast.cli.output import print_error, print_note
from holdfast.cli.settings import (
    PREFIX,
    check_environment,
    default_map,
    find_file,
    variables_of,
    where_from,
)
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    InfeasibleError,
    ModelError,
    OperationalError,
    RemoteProtocolError,
    WireError,
    is_interrupt,
)
from holdfast.extras import lacking

COMMAND_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Look at a cluster": {
        "serve": "Show a cluster in the browser: a list of groups, a page for each, /metrics.",
        "doctor": "Examine groups, the worst first: what is wrong, what it cost, what helps.",
        "lag": "Show the lag of groups, the largest first, and the owners of partitions.",
        "report": "Write one HTML file that shows ownership over time and the cost of rebalances.",
        "history": "Rebuild what every group went through from the offsets topic.",
        "watch": "Update the history of every group in batches; stop and restart it at any time.",
        "replay": "Replay every group's real history under other settings.",
        "plan": "Plan a new assignment for every group that has members.",
    },
    "Try without a cluster": {
        "demo": "Bounce real members on a real Kafka under two policies and compare the costs.",
        "broker": "Start a real Apache Kafka on this machine and keep it until Ctrl-C.",
        "simulate": "Simulate a group under a rebalance policy and measure what stops.",
    },
    "Decide for members": {
        "upgrade_check": "Check whether one rolling bounce to other assignors is safe, or why not.",
        "assign": "Assign the partitions of a group as one of the assignors would.",
    },
    "Files and formats": {
        "dump": "Write records, topic ids, begin and end offsets of a cluster to a folder.",
        "merge": "Merge dumps into one with all their records, to keep what compaction deletes.",
        "tables": "Maintain a folder of tables that `history` or `watch` has written.",
        "decode": "Read messages of group rebalancing, and records of the offsets topic, as JSON.",
    },
    "More": {
        "explain": "Explain a code that doctor prints, or list them all.",
        "config": "Settings (holdfast.toml, environment, flags), and the login of a client.",
    },
}
"""What people want -> module of each command for it, and its line in ``--help``: the command's own
first sentence, which ``--help`` would have to import the module for."""
COMMANDS: Final = {
    module: line for below in COMMAND_GROUPS.values() for module, line in below.items()
}

EXIT_FINDINGS, EXIT_USAGE, EXIT_SOURCE, EXIT_INFEASIBLE = 1, 2, 3, 4
EXIT_BUG, EXIT_INTERRUPT = 70, 130

COMPLETE = "_HOLDFAST_COMPLETE"
"""The environment variable through which a shell requests completions from Click."""
GLOBAL = frozenset({"--debug", "--verbose", "-v"})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing ends with where the system names no file."""


class _Commands(click.Group):
    """All commands, each imported when it is run; ``--help`` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the help."""
        return [_name(module) for module in COMMANDS]

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        """Import a command; return None for an unknown name."""
        module = cmd_name.replace("-", "_")
        if module in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = load(module)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line about each command, below what people want."""
        for title, below in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(_name(module), line) for module, line in below.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return command names that begin with the typed text, and options."""
        names = [
            CompletionItem(_name(module), help=line)
            for module, line in COMMANDS.items()
            if _name(module).startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the requested command, or suggest near names."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(
                args[0], possibilities=self.list_commands(ctx), ctx=ctx
            )
        return super().resolve_command(ctx, args)


def _name(module: str) -> str:
    return module.replace("_", "-")


def load(module: str) -> click.Command:
    """Import the command of a module of ``cli/commands``."""
    found = import_module(f"holdfast.cli.commands.{module}")
    if hasattr(found, "group"):
        group: click.Group = found.group
        return group
    return command_of(_name(module), found.run, found.EXAMPLES)


def _start_logging(context: click.Context, option: click.Parameter, verbose: bool) -> None:
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every call into the JVM


app = _Commands(
    "holdfast",
    help="Kafka consumer groups: examine them, try a policy, rebalance without downtime.",
    no_args_is_help=True,
    context_settings=CONTEXT,
    params=[
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            allow_from_autoenv=False,
            help="Show a traceback with every error.",
        ),
        click.Option(
            ["--verbose", "-v"],
            is_flag=True,
            expose_value=False,
            allow_from_autoenv=False,
            callback=_start_logging,
            help="Print the log to stderr.",
        ),
    ],
)
"""The options of the group; they may also follow the command."""
click.version_option(__version__, "--version", "-V", message="holdfast %(version)s")(app)


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error; an error that Ctrl-C caused counts as Ctrl-C."""
    if is_interrupt(error):
        return EXIT_INTERRUPT
    if isinstance(error, InfeasibleError):
        return EXIT_INFEASIBLE
    if isinstance(error, (ModelError, ConfigError)):
        return EXIT_USAGE
    if isinstance(error, (OperationalError, WireError, RemoteProtocolError)):
        return EXIT_SOURCE
    if isinstance(error, MemoryError) or _file_of(error) or lacking(error):
        return EXIT_SOURCE
    return EXIT_BUG


def _file_of(error: BaseException) -> str:
    """Return the file or folder that the system refused; empty if the error concerns none."""
    if not isinstance(error, OSError):
        return ""
    return str(error.filename or ("the output" if error.errno in FULL else ""))


def explained(error: BaseException) -> str:
    """Return one line about an error of another library: a file, an extra, a bug."""
    if file := _file_of(error):
        return f"cannot read or write {file}: {getattr(error, 'strerror', '')}"
    if isinstance(error, MemoryError):
        return f"too large for the memory of this machine: {str(error) or 'allocation failed'}"
    if missing := lacking(error):
        return missing
    # An error of Spark's workers arrives as a whole traceback: its last line names the reason.
    said = [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
    what = ": ".join([type(error).__name__, *said])
    return f"a bug in holdfast: {what} (--debug shows where)"


def command_name(arguments: Sequence[str]) -> str:
    """Return the command's name among the arguments; empty without one."""
    return next((word for word in arguments if not word.startswith("-")), "")


def in_front(arguments: Sequence[str], command: click.Command | None) -> list[str]:
    """Return the arguments with the global options first, wherever people typed them.

    A command that has such an option of its own keeps it.
    """
    own = {flag for option in (command.params if command else ()) for flag in option.opts}
    taken = [word for word in arguments if word in GLOBAL - own]
    return [*taken, *(word for word in arguments if word not in taken)]


def _all_variables() -> list[str]:
    """Return the names of the variables of every command's options."""
    return [v for module in COMMANDS for v in variables_of(_name(module), load(module))]


def _invoke(arguments: Sequence[str], name: str, path: Path | None) -> None:
    """Check the user's settings and run the command."""
    if COMPLETE in os.environ:
        app.main(prog_name="holdfast")  # the shell's question is answered, and nothing run
    command = app.get_command(None, name)
    values: dict[str, Any] = {}
    if command is not None:
        names = [_name(module) for module in COMMANDS]
        check_environment(name, command, names, os.environ, _all_variables)
        values = default_map(name, command, names, path)
    given = in_front(arguments, command)
    with app.make_context(
        "holdfast", given, auto_envvar_prefix=PREFIX, default_map=values
    ) as context:
        app.invoke(context)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    open_streams()
    arguments = sys.argv[1:] if argv is None else argv
    arguments = [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments
    debug = "--debug" in arguments
    path: Path | None = None
    code: str | int | None = 0
    try:
        name = command_name(arguments)
        path = find_file() if name else None
        _invoke(arguments, name, path)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.Abort:
        code = EXIT_INTERRUPT
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = EXIT_USAGE
    except click.ClickException as error:
        print_error(error.format_message())
        if origin := where_from(error, path):
            print_note(origin)
        code = EXIT_USAGE
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except SystemExit as stop:  # rich ends with 1 where a reader has seen enough
        code = 0 if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except (Exception, KeyboardInterrupt) as error:
        code = _report(error, debug=debug)
    sys.exit(code)


def _report(error: BaseException, *, debug: bool) -> int:
    """Print an error in one line, with a traceback on request; return the exit code."""
    if debug:
        traceback.print_exc()
    if not is_interrupt(error):
        print_error(str(error) if isinstance(error, HoldfastError) else explained(error))
    return exit_code(error)


class _Whole(io.FileIO):
    """A file whose writes are never partial.

    A system may accept only a part of a write: of a pipe that another program made non-blocking
    (pipes and terminals are shared), at a signal, or if the disk is full. Python's own stdout
    silently drops the rest under ``PYTHONUNBUFFERED``, and raises halfway otherwise. This file
    writes the rest, and waits until the reader has read.
    """

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            written = super().write(left)
            if written is None:  # full, and it would not wait by itself
                select.select([], [self], [])
            else:
                left = left[written:]
        return size


def open_streams() -> None:
    """Open the standard streams that the caller closed; escape what a stream cannot encode."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _whole(sys.stdout)
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")


def _whole(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    try:
        number = stream.fileno()
    except OSError:  # in memory
        stream.reconfigure(errors="backslashreplace")
        return stream
    return io.TextIOWrapper(
        _Whole(number, "w", closefd=False),  # as Python's own with -u
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _nowhere(mode: str) -> Any:
    return Path(os.devnull).open(mode, encoding="utf-8")
