"""Makes the project's pictures from the page itself: `python -m tests.support.pictures`.

The link preview, README's pictures and the film of the race. Needs a Chromium and no model, because the page opens on recorded runs.
"""

from __future__ import annotations

import io
import time
from itertools import pairwise

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from specviz.app.components.scripted_html import STATIC
from specviz.app.page import build_page
from specviz.resources import ASSETS
from specviz.serving.service import Service
from tests.browser.conftest import _chromium
from tests.support.serving import start

COLOURS = 128
FILM = {"seconds": 11.0, "pause": 0.16, "width": 880, "colours": 160}
"""Seconds to film, least seconds between two frames, and the width and number of colours of the frames."""
STILLS = {
    "page-light.png": ("?tab=generate&run=code&__theme=light", 1280, 800),
    "page-dark.png": ("?tab=generate&run=code&__theme=dark", 1280, 800),
    "tradeoff-light.png": ("?tab=tradeoff&__theme=light", 1280, 900),
}


def main() -> None:
    """Serve the page, look at it, and save what is seen."""
    service = Service()
    url = start(build_page(service))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        for name, (address, width, height) in STILLS.items():
            page = _open(browser, f"{url}{address}", width, height)
            page.wait_for_timeout(6000)
            _still(page).save(ASSETS / name, optimize=True)
            page.close()
        page = _open(browser, f"{url}?tab=idea&__theme=light", 1200, 630)
        page.wait_for_timeout(4000)
        _still(page).save(STATIC / "page/preview.png", optimize=True)
        page.close()
        _film(browser, f"{url}?tab=idea&__theme=light")
        browser.close()
    service.close()


def _open(browser: Browser, address: str, width: int, height: int, motion: bool = False) -> Page:
    size = {"width": width, "height": height}
    page = browser.new_page(viewport=size, reduced_motion="no-preference" if motion else "reduce")  # type: ignore[arg-type]
    page.goto(address)
    page.locator("#bar").wait_for(timeout=60_000)
    return page


def _still(page: Page) -> Image.Image:
    seen = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return seen.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def _film(browser: Browser, address: str) -> None:
    """Film the race as an animated GIF; each frame is shown for as long as it took."""
    page = _open(browser, address, 1280, 800, motion=True)
    page.locator("#race .specviz").wait_for(timeout=60_000)
    frames, times, start = [], [], time.monotonic()
    while time.monotonic() - start < FILM["seconds"]:
        times.append(time.monotonic())
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        time.sleep(max(0.0, FILM["pause"] - (time.monotonic() - times[-1])))
    page.close()
    width = int(FILM["width"])
    small = [
        each.resize((width, each.height * width // each.width), Image.Resampling.LANCZOS) for each in frames
    ]
    palette = small[-1].quantize(int(FILM["colours"]), dither=Image.Dither.NONE)
    drawn = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in small]
    stays = [round(1000 * (after - before)) for before, after in pairwise(times)] + [4000]
    drawn[0].save(
        ASSETS / "race.gif", save_all=True, append_images=drawn[1:], duration=stays, loop=0, optimize=True
    )


if __name__ == "__main__":
    main()
