"""``holdfast config``: which settings count, where each comes from, and whether a login works."""

from __future__ import annotations

import os
from typing import Annotated, Any

import click

from holdfast.cli.declared import Option, group_of
from holdfast.cli.histories import live_cluster
from holdfast.cli.options import (
    TIMEOUT,
    CommandConfig,
    NeededBootstrap,
    OutputFile,
    PrintFormat,
    Quiet,
    Timeout,
)
from holdfast.cli.output import Format, notes, write_rows
from holdfast.cli.settings import check_environment, default_map, effective, find_file, variables_of
from holdfast.core.command_lines import holdfast_line
from holdfast.errors import ConfigError

EXAMPLES = """\b
Examples:
  holdfast config show
  holdfast config show --command doctor --format json
  HOLDFAST_DOCTOR_FAIL_ON=warn holdfast config show
  holdfast config check -b broker:9093 --command-config client.properties
\b
A settings file is holdfast.toml here, else in ~/.config/holdfast;
HOLDFAST_CONFIG names another one. Flags win over the environment,
which wins over the file:
  [defaults]
  bootstrap-server = "localhost:9092"
  [doctor]
  fail-on = "warn"
"""
_COLUMNS = ("command", "option", "value", "source", "environment")


def show(
    *,
    command: Annotated[
        str | None,
        Option("--command", metavar="COMMAND", help="Show the options of this command only."),
    ] = None,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Show every option's value as it counts without flags, and where it comes from."""
    context = click.get_current_context().find_root()
    root: Any = context.command
    commands = {name: root.get_command(context, name) for name in root.list_commands(context)}
    if command is not None and command not in commands:
        raise ConfigError(f"no command {command!r}; `{holdfast_line('--help')}` lists them")
    path = find_file()
    variables = [v for name, one in commands.items() for v in variables_of(name, one)]
    rows = []
    for name, one in commands.items():
        check_environment(name, one, [*commands], os.environ, lambda: variables)
        values = default_map(name, one, [*commands], path)
        rows += [
            {**setting, "value": _plain(setting["value"])}
            for setting in effective(name, one, values, path)
            if command in {None, name}
        ]
    write_rows(rows, _COLUMNS, fmt, output, title="Settings")
    notes(quiet)(f"settings file: {path or 'none'}")


def check(
    bootstrap: NeededBootstrap,
    command_config: CommandConfig = None,
    timeout: Timeout = TIMEOUT,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
) -> None:
    """Connect to a cluster step by step, and name the step that fails.

    The file is one of Kafka's own tools; its security keys may be Java's or librdkafka's.
    """
    from holdfast.cluster.settings import oddities

    rows: list[dict[str, Any]] = []

    def note(step: str, found: str) -> None:
        rows.append({"step": step, "found": found})

    if command_config is not None:
        for oddity in oddities(command_config):
            note("file", oddity)
    try:
        live_cluster(bootstrap, command_config, timeout).check_steps(note)
    finally:
        write_rows(rows, ("step", "found"), fmt, output, title="Connection")


def _plain(value: Any) -> Any:
    """Return a value as a JSON type."""
    if isinstance(value, (str, int, float, bool, list)) or value is None:
        return getattr(value, "value", value)
    return str(value)


group = group_of(
    "config",
    {"show": show, "check": check},
    "Settings (holdfast.toml, environment, flags), and the login of a client.",
    EXAMPLES,
)
