"""``holdfast explain``: what a finding's code means, how it is recognised, what to do."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.text import Text

from holdfast.cli.declared import Argument
from holdfast.cli.options import OutputFile, PrintFormat, Quiet
from holdfast.cli.output import Format, write_json, write_rows
from holdfast.core.command_lines import holdfast_line
from holdfast.errors import ConfigError, nearest
from holdfast.fleet.tables.storage.file_system import open_private

if TYPE_CHECKING:
    from holdfast.fleet.analysis.findings.finding import Rule

_COLUMNS = ("code", "severity", "name", "what")


EXAMPLES = """\b
Examples:
  holdfast explain HF104
  holdfast explain --format json
"""


def run(
    *,
    code: Annotated[
        str | None,
        Argument(help="Code of a finding, such as HF104; default: list all codes."),
    ] = None,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Explain a code that doctor prints, or list them all."""
    from holdfast.fleet.analysis.findings.examination import all_rules

    del quiet  # `write_rows`, which prints the only notes, reads the option itself
    rules = {rule.code: rule for rule in all_rules()}
    words = ("code", "name", "severity", "what", "why", "how", "mend")
    as_dict = {c: {w: str(getattr(rule, w)) for w in words} for c, rule in rules.items()}
    if code is None:
        title = "Findings of the doctor"
        write_rows(as_dict.values(), _COLUMNS, fmt, output, title=title)
        return
    wanted = code.upper() if code.upper().startswith("HF") else f"HF{code}"
    if wanted not in rules:
        named = [f"{rule.code} {rule.name}" for rule in rules.values()]
        held = [name for name in named if code.casefold() in name.casefold()]
        hint = f"; did you mean {' or '.join(held)}?" if held else nearest(wanted, rules, 3)
        listed = f"; `{holdfast_line('explain')}` lists them all"
        raise ConfigError(f"no code {code!r}{hint or listed}")
    if fmt is Format.JSON:
        write_json({"schema_version": 1, **as_dict[wanted]}, output)
    elif fmt is Format.TABLE:
        with nullcontext() if output is None else open_private(output) as file:
            _print(rules[wanted], Console(file=file, highlight=False))
    else:
        write_rows([as_dict[wanted]], words, fmt, output)


def _print(rule: Rule, console: Console) -> None:
    """Print a finding for people, paragraph by paragraph."""
    console.print(Text(f"{rule.code} {rule.name}", style="bold") + Text(f"  ({rule.severity})"))
    for heading, text in (
        ("What", rule.what),
        ("Why it matters", rule.why),
        ("How it is detected", rule.how),
        ("What helps", rule.mend),
    ):
        console.print(Text(f"\n{heading}", style="bold") + Text(f"\n{text}"))
