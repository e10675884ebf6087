"""``holdfast simulate --scenario N`` for scenes: what was expected, and what came of it.

**Rules.** A scene has its own group and policy; of the options only ``--trace`` and those of the
output mean something to it. Exit 1 when something came otherwise or a checker found a broken rule.

**Strategy.** :mod:`holdfast.sim.scenes` plays it.
"""

from __future__ import annotations

from pathlib import Path

import typer

from holdfast.cli.output import Format, print_note, write_json, write_rows
from holdfast.sim.faultbook import TITLES, slug
from holdfast.sim.scenes import play_scene


def run_scene(number: int, fmt: Format, output: Path | None, *, trace: bool) -> None:
    """Play a scene and print what was expected of it, line by line."""
    scene = play_scene(number)
    if trace:
        for line in scene.trace:
            print_note(line)
    name = f"{number:02}_{slug(number)}"
    if fmt is Format.JSON:
        values = {
            "schema_version": 1,
            "scenario": name,
            "expected": [{"text": e.text, "holds": e.holds} for e in scene.expected],
            "violations": [v.to_dict() for v in scene.violations],
        }
        write_json(values, output)
    else:
        rows = [
            *({"expected": e.text, "came": "yes" if e.holds else "NO"} for e in scene.expected),
            *({"expected": f"{v.rule} holds", "came": v.text} for v in scene.violations),
        ]
        write_rows(rows, ("expected", "came"), fmt, output, title=f"{number}: {TITLES[number]}")
    if not scene.well:
        raise typer.Exit(1)
