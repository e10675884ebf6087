"""``holdfast config``: which settings count, and where each comes from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.options import OutputFile, PrintFormat
from holdfast.cli.output import Format, print_note, write_rows
from holdfast.cli.settings import effective
from holdfast.cli.settings_files import find_file
from holdfast.command_lines import holdfast_line
from holdfast.errors import ConfigError

EXAMPLES = """\b
Examples:
  holdfast config show
  holdfast config show --command doctor --format json
  HOLDFAST_DOCTOR_FAIL_ON=warn holdfast config show --changed
\b
A settings file is holdfast.toml here or in a folder above, in
~/.config/holdfast, or what HOLDFAST_CONFIG names. Flags win over the
environment, which wins over the file:
  \\[defaults]
  bootstrap-server = "localhost:9092"
  \\[doctor]
  fail-on = "warn"
"""
_COLUMNS = ("command", "option", "value", "source", "environment")


group = typer.Typer(
    help="Settings: holdfast.toml, environment, flags.", epilog=EXAMPLES, no_args_is_help=True
)


@group.callback()
def _root() -> None:
    """Settings: holdfast.toml, environment, flags; the later one wins."""


@group.command("show", epilog=EXAMPLES)
def show(
    context: typer.Context,
    *,
    command: Annotated[
        str | None, typer.Option("--command", help="Only the options of this command.")
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what differs from the defaults.")
    ] = False,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
) -> None:
    """Show every option's value as it counts without flags, and where it comes from."""
    root: Any = context.find_root().command
    if command is not None and command not in root.commands:
        raise ConfigError(f"no command {command!r}; `{holdfast_line('--help')}` lists them")
    found = find_file()
    rows = [
        {
            "command": setting.command,
            "option": setting.option,
            "value": _plain(setting.value),
            "source": setting.source,
            "environment": setting.environment,
        }
        for setting in effective(root, found.path)
        if command in (None, setting.command) and not (changed and setting.source == "default")
    ]
    write_rows(rows, _COLUMNS, fmt, output, title="Settings")
    where = f", above the project {found.project}" if found.above else ""
    print_note(f"settings file: {found.path or 'none'}{where}")


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, (str, int, float, bool, list)) or value is None:
        return getattr(value, "value", value)
    return str(value)
