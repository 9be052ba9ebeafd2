"""Transformers' import without looking for its models: to be asked for before that, which this module does not do.

As it is imported, transformers 5 reads the two thousand files of its models to find what each has to offer, which takes half a second and
is the same every time. What it found is kept in the cache. `tests/unit/compat/test_transformers_import.py` says what has changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from specviz.compat.around_imports import around_import
from specviz.files import kept

MODULE, FUNCTION, PREFIX = "transformers.utils.import_utils", "define_import_structure", "models"
"""The function that looks, where it is, and what it is asked for by the package itself."""

Found = dict[frozenset[str], dict[str, set[str]]]
"""Names by their modules, by what they need."""


def keep_list_of_models() -> None:
    """From now on the list is read where it was kept. Does nothing where transformers is imported already."""
    around_import(MODULE, _with_list_kept)


@contextmanager
def _with_list_kept(module: ModuleType) -> Iterator[None]:
    yield
    look: Callable[..., Found] | None = getattr(module, FUNCTION, None)
    if look is not None:
        setattr(module, FUNCTION, lambda path, prefix=None: _list(look, path, prefix))


def _list(look: Callable[..., Found], path: Any, prefix: str | None) -> Found:
    """What `look` finds; of the package's models, what it found before."""
    version = getattr(sys.modules.get("transformers"), "__version__", "dev")
    if prefix != PREFIX or "dev" in version:  # whose files may change
        return look(path, prefix)

    def found() -> str:
        return json.dumps(
            [
                [sorted(needs), {name: sorted(names) for name, names in modules.items()}]
                for needs, modules in look(path, prefix).items()
            ]
        )

    text = kept("transformers-models.json", [version.encode(), str(path).encode()], found)
    return {
        frozenset(needs): {name: set(names) for name, names in modules.items()}
        for needs, modules in json.loads(text)
    }
