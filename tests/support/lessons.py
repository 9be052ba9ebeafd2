"""A small lesson, which a test writes into a folder of its own."""

from __future__ import annotations

from pathlib import Path

PICTURES = """
- kind: coin
  run: lossless
  token: 39
"""
TEXT = """
# A lesson

About it.

## A step about {draft}

The drafter gave it {q}.

Will it stay?

- [ ] It stays
- [x] It goes

It went, with {chance}.

> Say something.

---

The end of it.
"""


def write_lesson(folder: Path, **files: str) -> Path:
    """Write the small lesson; `files` replace its own, by name, or add to them; "" leaves one out."""
    for name, content in ({"pictures.yaml": PICTURES, "en.md": TEXT} | files).items():
        if content:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content.lstrip("\n"), encoding="utf-8")
    return folder
