"""Scenario files of ``holdfast simulate``: JSON with the steps of a scenario.

**Rules.** A wrong step is refused with its position in the file, before anything runs.

**Strategy.** Each entry of ``steps`` becomes a :class:`holdfast.sim.scenarios.ScenarioStep`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast.cli.durations import parse_duration_ms
from holdfast.core.model.limits import INT32_MAX
from holdfast.errors import ConfigError, SourceError, suggest
from holdfast.sim.scenarios import SCENARIOS, ScenarioStep


def read_scenario(name: str, members: int) -> tuple[ScenarioStep, ...]:
    """Read the steps of a scenario file for a group of ``members`` members.

    Raises
    ------
    ConfigError
        The file does not exist, or a step is wrong.
    SourceError
        The file is not a scenario.
    """
    path = Path(name)
    if not path.exists():
        hint = suggest(name, SCENARIOS)
        raise ConfigError(f"--scenario {name}: neither a scenario nor a file; {hint}")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["steps"]
        script = tuple(_step(entry, i) for i, entry in enumerate(entries))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SourceError(f"{name}: not a scenario file: {why}") from error
    if not script:
        raise ConfigError(f"{name}: steps: found none, expected at least one")
    started = {-1, *range(members)}
    for step in sorted(script, key=lambda s: s.at_ms):
        if step.do == "start":
            started.add(step.slot)
        if step.slot not in started:
            raise ConfigError(
                f"{name}: slot: found {step.slot}, expected 0 to {members - 1}, one that was "
                "started before, or -1 for the leader"
            )
    return script


def _step(entry: dict[str, Any], index: int) -> ScenarioStep:
    allowed = {f.name for f in fields(ScenarioStep)} - {"at_ms", "for_ms"} | {"at", "for"}
    unknown = sorted(set(entry) - allowed)
    if unknown:
        raise ConfigError(f"steps[{index}]: unknown key {unknown[0]!r}; known: {sorted(allowed)}")
    if type(entry.get("returns", True)) is not bool:
        raise ConfigError(f"steps[{index}].returns: found {entry['returns']!r}, expected a bool")
    for key, lowest in (("slot", -1), ("count", 0)):
        value = entry.get(key, 0)
        if type(value) is not int or not lowest <= value <= INT32_MAX:
            raise ConfigError(f"steps[{index}].{key}: found {value!r}, expected {lowest} or more")
    at_ms = parse_duration_ms(str(entry["at"]), f"steps[{index}].at")
    text = str(entry.get("for", 0)).strip()
    back = text.startswith("-") and entry["do"] == "jump-clock"  # only a clock goes backwards
    for_ms = parse_duration_ms(text.removeprefix("-") if back else text, f"steps[{index}].for")
    if max(at_ms, for_ms) > INT32_MAX:
        raise ConfigError(f"steps[{index}]: {max(at_ms, for_ms)} ms, expected at most {INT32_MAX}")
    values = {k: v for k, v in entry.items() if k not in ("at", "for")}
    return ScenarioStep(at_ms=at_ms, for_ms=-for_ms if back else for_ms, **values)
