"""Measures the first screen of a place: the room of its texts, its controls, and what is cut, covered or out of sight."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from playwright.sync_api import Page, ViewportSize

from tests.browser.driving import let_draw

SCREENS = ((1280, 800, 0.45), (390, 844, 0.4))
"""Width, height, and the least share of the screen for the texts."""

_MEASURE = """({ place, texts, parts, words, prefix }) => {
  const box = (node) => node.getBoundingClientRect();
  const inside = (one) => ({ left: Math.max(0, one.left), right: Math.min(innerWidth, one.right), top: Math.max(0, one.top), bottom: Math.min(innerHeight, one.bottom) });
  const area = (one) => Math.max(0, one.right - one.left) * Math.max(0, one.bottom - one.top);
  const all = (at) => [...document.querySelectorAll(at)];
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && area(inside(box(node))) > 0;
  const controls = all(place + ' :is(button, a[href], input, select, textarea, summary)').filter(seen);
  const shown = all(parts).filter(seen);
  const faults = [];
  for (const node of [...controls, ...all(words).filter(seen)])
    if (!node.matches('textarea, select, input') && node.scrollWidth > node.clientWidth + 1) faults.push('cut: ' + node.className + ' ' + node.textContent);
  // A scrolled row of panes clips all but one of them.
  const clipped = (node) => { for (let at = node.parentElement; at; at = at.parentElement) if (getComputedStyle(at).overflowX !== 'visible' && box(node).left >= box(at).right - 1) return true; };
  for (const node of all(words).filter((each) => seen(each) && !clipped(each))) {
    const around = box(node.parentElement);
    if (box(node).right > Math.min(innerWidth, around.width ? around.right : innerWidth) + 1) faults.push('sticks out: ' + node.className);
  }
  for (const group of [shown, controls])
    group.forEach((one, at) => group.slice(at + 1).forEach((other) => {
      const [a, b] = [box(one), box(other)];
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
        faults.push('overlap: ' + (one.id || one.className) + ', ' + (other.id || other.className));
    }));
  for (const part of shown) if (box(part).bottom > innerHeight + 1) faults.push('below the edge: ' + part.className);
  if (document.documentElement.scrollWidth > innerWidth) faults.push('wider than the screen');
  if (prefix !== null) {
    const button = all('#' + prefix + 'run, #' + prefix + 'stop').filter(seen);
    if (button.length !== 1 || box(button[0]).bottom > innerHeight) faults.push('Run or Stop is out of sight');
  }
  const share = all(texts).reduce((sum, node) => sum + area(inside(box(node))), 0) / innerWidth / innerHeight;
  return { share, controls: controls.length, faults };
}"""


@dataclass(frozen=True)
class Place:
    """A place, by selectors."""

    place: str
    """What holds its controls."""
    texts: str
    """The boxes of coloured text, or what else the place is for."""
    parts: str
    """Parts that must lie within the window and not overlap."""
    words: str
    """Further elements whose text must not be cut."""
    controls: int
    """Most controls."""
    prefix: str | None = ""
    """Of the ids of Run and Stop; None where they are in a drawer."""


def faults(page: Page, place: Place, when: str) -> list[tuple[Any, ...]]:
    """What is wrong with a place's first screen, in every size, with normal and with larger text."""
    wrong = []
    for width, height, least in SCREENS:
        page.set_viewport_size(ViewportSize(width=width, height=height))
        for large in (False, True):
            page.evaluate("large => document.documentElement.classList.toggle('specviz-large', large)", large)
            let_draw(page)
            found = page.evaluate(_MEASURE, asdict(place))
            if found["share"] < least or found["controls"] > place.controls or found["faults"]:
                wrong.append((when, width, "large" if large else "normal", found))
    page.evaluate("() => document.documentElement.classList.remove('specviz-large')")
    return wrong
