"""The page about members names every configuration key, and none that does not exist."""

import re
from pathlib import Path

from holdfast.adapters.settings import ALIASES, KEYS

PAGE = Path(__file__).parents[2] / "docs" / "members.md"


def test_every_key_is_on_the_page_and_no_other():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    named = {key for row in rows for key in re.findall(r"`([a-z.]+)`", row.split("|")[1])}
    assert named == set(KEYS)
    assert not named & set(ALIASES)
