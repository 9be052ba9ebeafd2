"""Gradio without the stubs that it writes: to be asked for before gradio is imported, which this module does not do.

For every class of component gradio parses the module with the class in it and writes a `.pyi` file beside it, for editors, whenever it is
imported: a good third of the time that importing it takes (seen in 6.31, there since 3.0; no option turns it off). The function that does
it is called while the package is imported, so it is replaced as soon as its module has run. `tests/unit/compat/test_gradio_stubs.py` says
in a sentence what has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULE, FUNCTION = "gradio.component_meta", "create_or_modify_pyi"


def write_no_stubs() -> None:
    """From now on gradio writes none. Does nothing where gradio is imported already."""
    if MODULE not in sys.modules and not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the one module, as Python itself does, and no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
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
        if hasattr(module, FUNCTION):  # else there is nothing to leave out any more
            setattr(module, FUNCTION, lambda *_, **__: None)
