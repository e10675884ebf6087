"""Every generated page is what the code writes now."""

from __future__ import annotations

import pytest
from tests.suites import further
from tools.write_pages import PAGES, ROOT, whole_text

DEAR = {"docs/measured/designs.md", "docs/policies.md"}  # every design, every pair of policies


@pytest.mark.parametrize("name", further(PAGES, stays=PAGES.keys() - DEAR))
def test_a_page_is_what_the_code_writes(name):
    assert (ROOT / name).read_text(encoding="utf-8") == whole_text(name)


def test_the_designs_measured_live_name_their_script():
    live = (ROOT / "docs/measured/bounce.md").read_text(encoding="utf-8")
    assert live.count("`python bench/bounce.py") >= 4
