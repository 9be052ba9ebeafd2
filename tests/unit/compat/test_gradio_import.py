"""Gradio is imported by the page without making documentation; each test says in a sentence what has changed."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import gradio.caching
import gradio.component_meta
import gradio.events

import specviz
from specviz.compat.gradio_import import CACHING, CLIENTS, CONTEXT, DOCUMENTING
from tests.support.wheel import ROOT

MODULE, EVENTS = DOCUMENTING
FUNCTION, METHOD = DOCUMENTING.values()

SCRIPT = f"""
import sys, pathlib
import specviz.app
import gradio
calls = []
module = sys.modules["{MODULE}"]
assert module.{FUNCTION}(None, "", []) is None
assert gradio.blocks_events.{FUNCTION} is module.{FUNCTION}
assert "{{{{ component }}}}" in gradio.Button.click.__doc__

class Own(gradio.HTML):
    pass

assert not pathlib.Path("own.pyi").exists()
print(gradio.Button("Run").elem_id, Own("<p>").value)
"""


def test_the_page_imports_gradio_without_its_stubs_and_its_events_docstrings(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(specviz.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "own.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, (
        f"Gradio does not work, or makes documentation, once {DOCUMENTING} are replaced: {run.stderr}"
    )
    assert run.stdout.split() == ["None", "<p>"]


CLIENTS_SCRIPT = """
import ssl
made, make = [], ssl.create_default_context
ssl.create_default_context = lambda *given, **named: made.append(make(*given, **named)) or made[-1]
import specviz.app
import gradio, gradio.routes, httpx
httpx.Client(), httpx.AsyncClient()
print(len(made))
httpx.Client(trust_env=False), httpx.Client(verify=False)
print(len(made))
"""


def test_http_clients_of_the_page_read_the_certificates_once() -> None:
    run = subprocess.run([sys.executable, "-c", CLIENTS_SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.split() == ["1", "2"], (
        f"{CLIENTS} makes its contexts by another function than {CONTEXT}: each client reads all certificates. {run.stderr}"
    )


def test_gradio_still_writes_its_stubs_by_the_function_that_is_replaced() -> None:
    function = getattr(gradio.component_meta, FUNCTION, None)
    assert function is not None, (
        f"Gradio has no {MODULE}.{FUNCTION} any more: that part of compat/gradio_import.py may go."
    )
    source = inspect.getsource(gradio.component_meta.ComponentMeta)
    called = {
        node.func.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert FUNCTION in called, (
        f"Gradio's component classes no longer call {FUNCTION}: that part of compat/gradio_import.py may go."
    )


def test_gradio_still_compiles_a_template_for_each_events_docstring() -> None:
    owner, name = METHOD.split(".")
    # Read from the file: in this process it may be replaced.
    classes = [
        each
        for each in ast.walk(ast.parse(inspect.getsource(gradio.events)))
        if isinstance(each, ast.ClassDef)
    ]
    methods = {
        (each.name, method.name): ast.unparse(method)
        for each in classes
        for method in each.body
        if isinstance(method, ast.FunctionDef)
    }
    assert (owner, name) in methods, f"Gradio has no {EVENTS}.{METHOD} any more: it need not be replaced."
    assert "Template" in methods[owner, name], f"{METHOD} compiles nothing any more: it need not be replaced."
    assert f".{name}(" in inspect.getsource(gradio.component_meta) + inspect.getsource(gradio.events)


def test_gradio_still_imports_pandas_for_tables_among_arguments() -> None:
    source = inspect.getsource(sys.modules[CACHING])
    assert "\nimport pandas as pd\n" in source, (
        f"{CACHING} imports pandas in another way: it may come with gradio again."
    )
