"""Takes the picture of the page that the documentation shows: its top and a question about joint attention."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
from playwright.sync_api import sync_playwright

from clipshards.output import current_snapshot
from clipshards.report import PAGE

WIDTH = 1280
LEVELS = 64
"""Of each colour: PNG then packs the frames better, and nobody sees it."""


def main(root: Path, out: Path) -> None:
    """Make the demo in `out` where there is none, and take the picture of its page."""
    if not (out / "current").exists():
        subprocess.run([Path(sys.executable).with_name("clipshards"), "demo", out], check=True)
    target = root / "docs/images/page.png"
    target.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto((current_snapshot(out) / PAGE).as_uri())
        page.select_option("#choose-category", "=J3")
        page.locator("#example li.strong", has_text="J3").wait_for()
        page.locator("#example summary").click()
        page.evaluate("Promise.all([...document.images].map((image) => image.decode()))")
        bottom = page.evaluate("document.getElementById('example').getBoundingClientRect().bottom + scrollY")
        whole = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + 24}
        page.screenshot(path=target, full_page=True, clip=whole)
    step = 256 // LEVELS
    picture = cv2.imread(str(target)).astype(int)
    fewer = ((picture + step // 2) // step * step).clip(0, 255).astype(np.uint8)
    cv2.imwrite(str(target), fewer, [cv2.IMWRITE_PNG_COMPRESSION, 9])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else Path(sys.argv[1]) / "demo/out"))
