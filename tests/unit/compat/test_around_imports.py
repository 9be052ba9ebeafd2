"""Something is done around the import of a module, and a module can be left for later."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from specviz.compat.around_imports import around_import, later


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where modules are found, each of which is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - known:
        del sys.modules[name]


def test_it_is_done_before_and_after_a_module_runs(folder: Path) -> None:
    (folder / "specviz_first.py").write_text("seen = list(__import__('specviz_log').log)")
    (folder / "specviz_log.py").write_text("log = []")
    import specviz_log  # type: ignore[import-not-found]

    @contextmanager
    def around(module: ModuleType) -> Iterator[None]:
        specviz_log.log.append(f"before {module.__name__}")
        yield
        module.more = "after"  # type: ignore[attr-defined]

    around_import("specviz_first", around)
    import specviz_first  # type: ignore[import-not-found]

    assert (specviz_first.seen, specviz_first.more) == (["before specviz_first"], "after")
    around_import("specviz_log", around)  # is imported already
    import specviz_log  # noqa: F811

    assert specviz_log.log == ["before specviz_first"]


def test_a_module_left_for_later_is_imported_when_it_is_asked_for_something(folder: Path) -> None:
    (folder / "specviz_heavy.py").write_text("value = 7")
    (folder / "specviz_user.py").write_text("import specviz_heavy as heavy\nget = lambda: heavy.value")
    with later("specviz_heavy"):
        import specviz_user  # type: ignore[import-not-found]

        assert not hasattr(specviz_user.heavy, "__file__"), "who looks through all modules does not import it"
    assert "specviz_heavy" not in sys.modules
    assert specviz_user.get() == 7
    assert sys.modules["specviz_heavy"].value == 7
    with later("specviz_heavy"):  # is imported already
        assert sys.modules["specviz_heavy"].value == 7


def test_a_module_that_is_asked_for_something_at_once_is_imported_at_once(folder: Path) -> None:
    (folder / "specviz_heavy.py").write_text("value = 7")
    (folder / "specviz_eager.py").write_text("import specviz_heavy\nvalue = specviz_heavy.value")
    with later("specviz_heavy"):
        import specviz_eager  # type: ignore[import-not-found]

    assert specviz_eager.value == 7
    assert sys.modules["specviz_heavy"].value == 7


def test_what_the_page_leaves_out_is_left_out_and_works_when_it_is_asked_for() -> None:
    """A page with its pair's imports brings neither pandas nor torch's shapes; both are there for whoever asks."""
    code = """
import sys
from specviz.app.server import build
page, service, classroom = build()
import specviz.models.loading, torch, gradio.caching
assert not {"pandas", "torch._meta_registrations"} & sys.modules.keys(), "something else imports them now"
assert torch._library.utils.get_source(1).endswith(":7")
assert gradio.caching.pd.DataFrame({"a": [1]}).shape == (1, 1)
import specviz.models.modules
assert "torch._meta_registrations" in sys.modules
service.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
