"""The ``holdfast`` command: one Typer app, one module per command, one way to fail.

**Rules.** Data go to stdout, progress and logs to stderr. A command module imports heavy packages
(Spark, clients) inside its function. Only this module turns an error into an exit code:
0 ok, 1 findings, 2 usage or config, 3 source, 4 infeasible, 70 our bug, 130 Ctrl-C.

**Strategy.** Every file of ``cli/commands`` is a command and is named as the command is
(:mod:`holdfast.cli.commands`). A call of one command imports its module alone; ``--help`` imports
all of them.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any

import typer

from holdfast import __version__
from holdfast.cli import commands
from holdfast.cli.output import print_error, print_note
from holdfast.cli.settings import for_click, note_from_above, variables_of
from holdfast.cli.settings_files import find_file
from holdfast.cli.streams import open_streams
from holdfast.cli.strict import check_environment, refuse_repeats
from holdfast.errors import (
    AdapterError,
    ConfigError,
    HoldfastError,
    InfeasibleError,
    ModelError,
    RemoteProtocolError,
    WireError,
)
from holdfast.tables.places import local_path

HELP_ORDER = (
    "assign",
    "simulate",
    "simulate_soak",
    "simulate_search",
    "upgrade_check",
    "broker",
    "demo",
    "dump",
    "merge",
    "history",
    "lag",
    "plan",
    "replay",
    "watch",
    "decode",
    "encode",
    "report",
    "doctor",
    "explain",
    "serve",
    "export",
    "tables",
    "config",
)
"""Order of ``--help``; a command that is not named here comes last."""


def _command_files() -> tuple[str, ...]:
    files = [module.name for module in iter_modules(commands.__path__)]
    rank = {name: at for at, name in enumerate(HELP_ORDER)}
    return tuple(sorted(files, key=lambda name: (rank.get(name, len(rank)), name)))


COMMANDS = _command_files()
"""Modules of ``cli/commands``, none of them imported yet."""

EXIT_FINDINGS, EXIT_USAGE, EXIT_SOURCE, EXIT_INFEASIBLE = 1, 2, 3, 4
EXIT_BUG, EXIT_INTERRUPT = 70, 130

GLOBAL = frozenset({"--debug", "--verbose", "-v"})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing ends with where the system names no file."""

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Kafka consumer-group rebalancing: assign, simulate, look at real groups, explain.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


EXTRAS = {
    **dict.fromkeys(("pyarrow", "pandas", "pyspark"), "spark"),
    **dict.fromkeys(("grpc", "google", "zstandard"), "connect"),
    "kafka": "kafka",
    "aiokafka": "aiokafka",
    "confluent_kafka": "confluent",
    "werkzeug": "serve",
    "waitress": "serve",
    **dict.fromkeys(("hdfs_native", "fsspec"), "hdfs"),
}
"""Package that a command imports -> the extra that brings it."""

# Typer carries its own copy of Click in newer versions: take the class that it raises.
_CLICK_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback with every error.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what is logged, on stderr.")
    ] = False,
) -> None:
    """Global options; they may stand behind the command too."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every call into the JVM


def exit_code(error: BaseException) -> int:
    """Exit code of an error that reached the top."""
    if isinstance(error, InfeasibleError):
        return EXIT_INFEASIBLE
    if isinstance(error, (ModelError, ConfigError)):
        return EXIT_USAGE
    if isinstance(error, (AdapterError, WireError, RemoteProtocolError)):
        return EXIT_SOURCE
    if isinstance(error, MemoryError) or _file_of(error) or _missing(error):
        return EXIT_SOURCE
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPT
    return EXIT_BUG


def _file_of(error: BaseException) -> str:
    """File or folder that the system would not give us; empty where it is about none."""
    if not isinstance(error, OSError):
        return ""
    return str(error.filename or ("the output" if error.errno in FULL else ""))


def _missing(error: BaseException) -> str:
    """Package of an extra that is not installed; empty where it is about none."""
    package = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return package if package in EXTRAS else ""


def _explained(error: Exception) -> str:
    """One line about an error that holdfast did not raise on purpose."""
    if file := _file_of(error):
        return f"cannot read or write {file}: {getattr(error, 'strerror', '')}"
    if isinstance(error, MemoryError):
        return f"too large for the memory of this machine: {str(error) or 'no more could be had'}"
    if package := _missing(error):
        return f"{package} is not installed: pip install 'holdfast[{EXTRAS[package]}]'"
    # What Spark's workers raise comes as their whole traceback: its last line says what.
    said = [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
    what = ": ".join([type(error).__name__, *said])
    return f"a bug in holdfast: {what} (--debug shows where)"


@cache
def register(name: str) -> None:
    """Add the command of a module, once."""
    module, command = import_module(f"holdfast.cli.commands.{name}"), name.replace("_", "-")
    if hasattr(module, "group"):
        app.add_typer(module.group, name=command)
    else:
        app.command(command, epilog=module.EXAMPLES)(with_local_paths(module.run))


def with_local_paths(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, whose files cannot be URLs: ``file:///x`` is ``/x``, others are refused.

    An option that takes URLs has the type of a place (:mod:`holdfast.cli.options`).
    """

    @wraps(run)
    def checked(**options: Any) -> Any:
        return run(**{name: _local(value) for name, value in options.items()})

    return checked


def _local(value: Any) -> Any:
    if isinstance(value, list):
        return [_local(one) for one in value]
    return local_path(value) if isinstance(value, Path) else value


def register_all() -> None:
    """Add every command, each once, in the order of ``--help``."""
    for name in COMMANDS:
        register(name)
    order = {name.replace("_", "-"): at for at, name in enumerate(COMMANDS)}
    app.registered_commands.sort(key=lambda command: order[str(command.name)])


def register_for(name: str, settings: Path | None) -> None:
    """Add the named command; add all, where help, settings or a wrong word need them."""
    module = name.replace("-", "_")
    if module in COMMANDS and module != "config" and settings is None:
        register(module)
    else:
        register_all()


def asked_for(arguments: Sequence[str]) -> str:
    """The command's name among the arguments; empty where there is none."""
    return next((word for word in arguments if not word.startswith("-")), "")


def in_front(arguments: Sequence[str], commands: Mapping[str, Any]) -> list[str]:
    """Arguments with the global options first, wherever they stood, as people type them.

    A command that has such an option of its own keeps it.
    """
    command = commands.get(asked_for(arguments))
    own = {flag for p in getattr(command, "params", ()) for flag in p.opts}
    taken = [word for word in arguments if word in GLOBAL - own]
    return [*taken, *(word for word in arguments if word not in taken)]


def _check(command: Any, name: str) -> None:
    """Refuse what a user has said and nobody would hear."""
    names = [module.replace("_", "-") for module in COMMANDS]
    check_environment(command.commands, names, os.environ, _all_variables)
    if name in command.commands:
        refuse_repeats(command.commands[name])


def _all_variables() -> list[str]:
    """Names of the variables of every command's options."""
    register_all()
    every: Any = typer.main.get_command(app)
    return [v for name, command in every.commands.items() for v in variables_of(name, command)]


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    open_streams()
    arguments = sys.argv[1:] if argv is None else argv
    debug = "--debug" in arguments
    code: str | int | None
    try:
        found = find_file()
        for line in found.ignored:
            print_note(line)
        register_for(asked_for(arguments), found.path)
        command: Any = typer.main.get_command(app)
        arguments = in_front(arguments, command.commands)
        _check(command, asked_for(arguments))
        settings = for_click(command, found.path)
        if note := note_from_above(command, found, asked_for(arguments), arguments):
            print_note(note)
        result = command.main(
            args=arguments, prog_name="holdfast", standalone_mode=False, **settings
        )
        code = result if isinstance(result, int) else 0
    except typer.Abort:
        code = EXIT_INTERRUPT
    except typer.Exit as stop:
        code = stop.exit_code
    except _CLICK_ERROR as error:
        error.message = str(error.message).replace("Value error, ", "")  # of a library, for nobody
        error.show()
        code = EXIT_USAGE
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except (HoldfastError, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        if not isinstance(error, KeyboardInterrupt):
            print_error(str(error))
        code = exit_code(error)
    except SystemExit as stop:  # Typer and rich end with 1 where a reader has seen enough
        code = 0 if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except Exception as error:  # a file, an extra, or our bug: one line; traceback on request
        if debug:
            traceback.print_exc()
        print_error(_explained(error))
        code = exit_code(error)
    sys.exit(code)
