"""Gradio without what it does as it is imported and the page has no use for: to be asked for before that, which this module does not do.

For every class of component gradio parses the module with the class in it and writes a `.pyi` file beside it, for editors (seen in 6.31,
there since 3.0), and compiles a template for the docstring of each of its events: together a good third of the time that importing it
takes. It imports pandas, half a second and 40 MB, for tables among the arguments of functions whose results are kept; here there are none.
And it makes four HTTP clients before it serves, each of which reads all certificates that it trusts, 0.07 s: they share them.
No option turns these off. `tests/unit/compat/test_gradio_import.py` says in a sentence what has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from specviz.compat.around_imports import around_import, later

DOCUMENTING = {"gradio.component_meta": "create_or_modify_pyi", "gradio.events": "EventListener.set_doc"}
"""Functions by their modules; of the second the method of a class."""
CACHING = "gradio.caching"
"""The module that imports pandas."""
CLIENTS, CONTEXT = "httpx._transports.default", "create_ssl_context"
"""Where HTTP clients are made, and the function that reads the certificates."""


def lighten_gradio() -> None:
    """From now on gradio is imported without these. Does nothing where it is imported already."""
    if "gradio" in sys.modules:
        return
    for name in DOCUMENTING:
        around_import(name, _without_documentation)
    around_import(CACHING, lambda _: later("pandas"))
    around_import(CLIENTS, _with_one_context)


@contextmanager
def _without_documentation(module: ModuleType) -> Iterator[None]:
    """Replace the function once its module has run, which is before it is called."""
    yield
    owner, _, name = DOCUMENTING[module.__name__].rpartition(".")
    place = getattr(module, owner, None) if owner else module
    if hasattr(place, name):  # else there is nothing to leave out any more
        setattr(place, name, lambda *_, **__: None)


@contextmanager
def _with_one_context(module: ModuleType) -> Iterator[None]:
    """Let clients without certificates of their own have one context together."""
    yield
    make = getattr(module, CONTEXT, None)
    if make is None:
        return
    shared = cache(make)

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is True and cert is None:
            return shared(trust_env=trust_env)
        return make(verify=verify, cert=cert, trust_env=trust_env)

    setattr(module, CONTEXT, context)
