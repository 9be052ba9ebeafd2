"""Gradio without the documentation that it makes as it is imported: to be asked for before that, which this module does not do.

For every class of component gradio parses the module with the class in it and writes a `.pyi` file beside it, for editors (seen in 6.31,
there since 3.0), and compiles a template for the docstring of each of its events. Together they take a good third of the time that
importing it takes, and no option turns them off. The functions that do it are called while the package is imported, so they are
replaced as soon as their modules have run. `tests/unit/compat/test_gradio_documentation.py` says in a sentence what has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

LEFT_OUT = {"gradio.component_meta": "create_or_modify_pyi", "gradio.events": "EventListener.set_doc"}
"""Functions by their modules; of the second the method of a class."""


def make_no_documentation() -> None:
    """From now on gradio makes none. Does nothing where gradio is imported already."""
    if not LEFT_OUT.keys() & sys.modules and not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds those modules, as Python itself does, and no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in LEFT_OUT:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Runs a module as another loader does, and replaces the function in it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        owner, _, name = LEFT_OUT[module.__name__].rpartition(".")
        place = getattr(module, owner, None) if owner else module
        if hasattr(place, name):  # else there is nothing to leave out any more
            setattr(place, name, lambda *_, **__: None)
