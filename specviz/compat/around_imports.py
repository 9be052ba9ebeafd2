"""Doing something around the import of a module: what other packages do as they are imported, and no option turns off, can be left out
so. Knows no package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Around = Callable[[ModuleType], AbstractContextManager[None]]
"""Of a module that has been made: what is done before it runs, and after."""


def around_import(name: str, around: Around) -> None:
    """Once for a module, from its next import on; does nothing where it is imported already."""
    finder = next((each for each in sys.meta_path if isinstance(each, _Finder)), None)
    if finder is None:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
    if name not in sys.modules:
        finder.wanted[name] = around


class _Finder(MetaPathFinder):
    """Finds the modules that are wanted, as Python itself does, and no other."""

    def __init__(self) -> None:
        self.wanted: dict[str, Around] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.wanted:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.wanted[fullname])
        return spec


class _Loader(Loader):
    """Runs a module as another loader does, with something around it."""

    def __init__(self, loader: Loader, around: Around) -> None:
        self._loader, self._around = loader, around

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with self._around(module):
            self._loader.exec_module(module)


@contextmanager
def later(name: str) -> Iterator[None]:
    """Have a module that is imported meanwhile imported when it is first asked for something."""
    if name in sys.modules:
        yield
        return
    own = sys.modules[name] = _Later(name)
    try:
        yield
    finally:
        own.be_gone()


class _Later(ModuleType):
    """Stands for a module that has not been imported."""

    def be_gone(self) -> None:
        """From now on who imports the module gets it."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # who looks through all modules asks for such
            raise AttributeError(name)
        self.be_gone()
        return getattr(import_module(self.__name__), name)
