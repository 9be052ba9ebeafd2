"""Makes the picture that other sites show of a link to the page, from the page itself: `python -m tests.support.preview`.

Needs a Chromium and no model: the page opens on a recorded run. Knows where the picture lies.
"""

from __future__ import annotations

import io

from PIL import Image
from playwright.sync_api import sync_playwright

from specviz.app.components.scripted_html import STATIC
from specviz.app.page import build_page, launch
from specviz.serving.service import Service
from tests.browser.conftest import _chromium

PICTURE = STATIC / "page/preview.png"
SIZE = (1200, 630)
ADDRESS = "?tab=generate&run=code&__theme=light"
COLOURS = 128


def main() -> None:
    """Serve the page, look at it, and save what is seen."""
    service = Service()
    _, url, _ = launch(
        build_page(service), server_name="127.0.0.1", server_port=None, prevent_thread_lock=True, quiet=True
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": SIZE[0], "height": SIZE[1]}, reduced_motion="reduce", device_scale_factor=1
        )
        page.goto(f"{url}{ADDRESS}")
        page.get_by_test_id("token").first.wait_for(timeout=60_000)
        page.wait_for_timeout(4000)
        seen = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        browser.close()
    service.close()
    seen.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        PICTURE, optimize=True
    )


if __name__ == "__main__":
    main()
