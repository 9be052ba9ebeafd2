"""Makes README's picture and the link preview from the page itself: `python -m tests.support.pictures`.

Needs a Chromium and no model, because the page opens on recorded runs.
"""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from specviz.app.components.scripted_html import STATIC
from specviz.app.page import build_page
from specviz.resources import ASSETS
from specviz.serving.service import Service
from tests.browser.conftest import chromium
from tests.support.serving import close, start

COLOURS = 128
STILLS = {
    ASSETS / "page-light.png": ("?tab=generate&__theme=light", 1280, 800),
    STATIC / "page/preview.png": ("?tab=idea&__theme=light", 1200, 630),
}


def main() -> None:
    """Serve the page, look at it, and save what is seen."""
    service = Service()
    app = build_page(service)
    url = start(app, service)
    with chromium() as context:
        assert context.browser
        for file, (address, width, height) in STILLS.items():
            size: Any = {"width": width, "height": height}
            page = context.browser.new_page(viewport=size, reduced_motion="reduce")
            page.goto(f"{url}{address}")
            page.locator("#bar").wait_for(timeout=60_000)
            page.wait_for_timeout(6000)
            seen = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            still = seen.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            still.save(file, optimize=True)
            page.close()
    close(app)


if __name__ == "__main__":
    main()
