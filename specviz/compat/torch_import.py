"""Torch without what it does as it is imported and this server has no use for: to be asked for before that, which this module does not do.

It registers what operations do to shapes alone, by `_meta_registrations` and the decompositions that this imports: a third of the time
that importing torch takes. Torch's compiler imports it by itself, and `models.modules` before transformers makes a model without values.
And it finds out in which line of its own an operation is registered by going through all modules there are, 0.2 s beside gradio.
`tests/unit/compat/test_torch_import.py` says what has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from specviz.compat.around_imports import around_import, later

LATER = "torch._meta_registrations"
GENERATORS = "_set_generator_metaclass"
UTILITIES, SOURCE = "torch._library.utils", "get_source"
"""Where operations are registered, and the function that finds a line."""


def lighten_torch() -> None:
    """From now on torch is imported without these. Does nothing where it is imported already."""
    around_import("torch", _without_registrations)
    around_import(UTILITIES, _without_looking)


@contextmanager
def _without_registrations(module: ModuleType) -> Iterator[None]:
    with later(LATER):
        yield
    # What is left for later also gives generators their class, without which torch 2.13 makes none.
    give_class = getattr(module._C, GENERATORS, None)
    if give_class is not None:
        from torch._opaque_base import OpaqueBaseMeta  # not before torch is asked for

        give_class(OpaqueBaseMeta)


@contextmanager
def _without_looking(module: ModuleType) -> Iterator[None]:
    yield
    if hasattr(module, SOURCE):
        setattr(module, SOURCE, _source)


def _source(stacklevel: int) -> str:
    """As torch's: file and line of who calls the caller, or of a caller further out."""
    frame = sys._getframe(stacklevel)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
