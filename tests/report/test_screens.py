"""The picture against a kept one. ``HOLDFAST_REWRITE=1 pytest tests/report/test_screens.py`` keeps
new ones; look at them before they are committed."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import Opened
from tests.report.fleet import START_MS, rolling_bounce, tables

from holdfast.fleet.report.drawing.writing import write

pytestmark = pytest.mark.browser

KEPT = Path(__file__).parent / "screens"
# Text is drawn a little differently by every font: a picture may differ in so many pixels.
ALLOWED = 0.02
COMPARE = """async ([kept, now]) => {
  const pixels = async (text) => {
    const image = new Image();
    image.src = 'data:image/png;base64,' + text;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    const g = canvas.getContext('2d');
    g.drawImage(image, 0, 0);
    return [image.width, image.height, g.getImageData(0, 0, image.width, image.height).data];
  };
  const [w, h, a] = await pixels(kept), [w2, h2, b] = await pixels(now);
  if (w !== w2 || h !== h2) return [`${w} x ${h}`, `${w2} x ${h2}`];
  let other = 0;
  for (let i = 0; i < a.length; i += 4) {
    let far = 0;
    for (let k = i; k < i + 3; k++) far += Math.abs(a[k] - b[k]);
    if (far > 90) other++;
  }
  return other / (w * h);
}"""


def compare(chromium: Any, kept: bytes, now: bytes) -> Any:
    page = chromium.new_context().new_page()
    page.goto("about:blank")
    told = page.evaluate(COMPARE, [base64.b64encode(data).decode() for data in (kept, now)])
    page.context.close()
    return told


def drawn(page: Opened) -> bytes:
    """The timeline at a whole pixel: texts above it would shift it by fractions of one."""
    page.page.evaluate(
        "(({ style, offsetWidth }) => Object.assign(style, { position: 'fixed', top: '0',"
        " left: '0', width: `${offsetWidth}px` }))(document.getElementById('frame'))"
    )
    return page.page.locator("#frame").screenshot()


@pytest.mark.parametrize(
    ("name", "fragment", "scheme"),
    [
        ("whole", "", "light"),
        ("dark", "", "dark"),
        ("zoomed", "#t=2025-11-21T08:02:08.000Z&w=40&p=orders-1", "light"),
    ],
)
def test_the_timeline_looks_as_it_did(
    chromium: Any, tmp_path: Path, name: str, fragment: str, scheme: str
) -> None:
    out = write(tables(rolling_bounce()), tmp_path / "r.html", last_ms=START_MS + 600_000)
    page = Opened(chromium, out, fragment, color_scheme=scheme)
    now = drawn(page)
    page.close()
    path = KEPT / f"{name}.png"
    if os.environ.get("HOLDFAST_REWRITE"):
        KEPT.mkdir(exist_ok=True)
        path.write_bytes(now)
    difference = compare(chromium, path.read_bytes(), now)
    assert isinstance(difference, (int, float)), f"another size: {difference}"
    assert difference <= ALLOWED


def test_another_picture_differs_from_the_stored_one(chromium: Any, tmp_path: Path) -> None:
    script = rolling_bounce(members=3)
    out = write(tables(script), tmp_path / "r.html", last_ms=START_MS + 600_000)
    page = Opened(chromium, out)
    now = drawn(page)
    page.close()
    assert compare(chromium, (KEPT / "whole.png").read_bytes(), now) > 5 * ALLOWED
