"""``docs/commands.md``: every command with its options, from the Click application."""

from __future__ import annotations

import re

import click
from tools.pages.tables import paragraph

from holdfast.cli.app import app


def commands_page() -> str:
    """Return the whole page."""
    lines = [
        "# Commands",
        "",
        *paragraph(
            "[The command line](cli.md) says what commands share; `holdfast COMMAND --help` has "
            "examples. Every command also takes `--help` and `--debug`."
        ),
        "",
    ]
    root = click.Context(app, info_name="holdfast")
    for name in app.list_commands(root):
        command = app.get_command(root, name)
        assert command is not None
        lines += _command(f"holdfast {name}", command, root)
    return "\n".join(lines).rstrip("\n") + "\n"


def _command(name: str, command: click.Command, parent: click.Context) -> list[str]:
    """Return a section: a command's help, usage and options; then its own commands."""
    info = name.rpartition(" ")[2]
    context = click.Context(command, info_name=info, parent=parent, **command.context_settings)
    usage = " ".join(command.collect_usage_pieces(context))
    rows = [
        _row(option, context)
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        if not {"--help", "--debug"} & set(option.opts)
    ]
    lines = [f"## {name}", "", _first(command), "", f"```\n{name} {usage}\n```", ""]
    if rows:
        lines += [
            "| option | value | default | meaning |",
            "| --- | --- | --- | --- |",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
        lines.append("")
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            one = command.get_command(context, below)
            assert one is not None
            lines += _command(f"{name} {below}", one, context)
    return lines


def _first(command: click.Command) -> str:
    """Return the first sentence of a command's help."""
    return re.sub(r"\s+", " ", (command.help or "").split("\n\n")[0]).strip()


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str, str]:
    """Return the cells of an option: its flags, the form of its value, its default, its help."""
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return flags, "", "", _cell(option.help or "")
    form = option.make_metavar(context)
    default = option.get_help_extra(context).get("default", "")
    return flags, f"`{_cell(form)}`", _cell(default), _cell(option.help or "")


def _cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
