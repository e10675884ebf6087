"""The page about members names every configuration key and every policy, and no other."""

import re
from pathlib import Path

from holdfast.cluster import credentials
from holdfast.cluster.client_configs import ALIASES
from holdfast.core.machine.policy import POLICIES
from holdfast.members.config.settings import KEYS

PAGE = Path(__file__).parents[2] / "docs" / "members.md"


def rows(heading):
    """Cells of the first table below a heading."""
    _, text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")
    lines = text.split("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:3] == "| `"]


def test_every_key_is_on_the_page_and_no_other():
    named = {key for row in rows("Configuration") for key in re.findall(r"`([a-z.]+)`", row[0])}
    assert named - set(credentials.SPELLINGS) == set(KEYS)  # a login has more keys than settings
    assert not named & set(ALIASES)


def test_every_policy_is_on_the_page_with_its_protocol_and_what_a_worker_runs():
    shown = [(row[0], row[1].split(",")[0], row[2], row[3].strip("`-")) for row in rows("Policies")]
    assert shown == [
        (f"`{p.name}`", f"`{p.protocols[0]}`", p.summary, p.worker) for p in POLICIES.values()
    ]


def test_the_defaults_on_the_page_are_those_of_members():
    text = PAGE.read_text(encoding="utf-8")
    for keys in (
        ("scheduled.rebalance.max.delay.ms",),
        ("holdfast.incremental.batch", "holdfast.incremental.interval.ms"),
    ):
        names = ", ".join(f"`{key}`" for key in keys)
        assert f"| {names} | {', '.join(str(KEYS[key].default) for key in keys)} |" in text
