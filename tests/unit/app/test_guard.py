"""The guard tells a client which argument is wrong, and what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
import httpx
import pytest

from specviz.app.guard import GuardedBlocks, guarded
from tests.support.serving import close


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server with one endpoint, `add`."""

    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    with GuardedBlocks() as page:
        gr.api(add)
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, app_kwargs=guarded([]))
    yield f"{address}gradio_api/call"
    close(page)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"a": 1, "nonsense": 1}, "There is no argument 'nonsense' here: leave it out"),
        ({"a": 1, "é" * 500: 1}, "There is no argument 'ééé"),
        ({}, "The argument a is missing: give it a value."),
    ],
)
def test_a_wrong_argument_hears_its_name(body: dict[str, Any], words: str, address: str) -> None:
    answer = httpx.post(f"{address}/v2/add", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert len(answer.text) < 300


@pytest.mark.parametrize(("path", "body"), [("v2/subtract", {}), ("subtract", {"data": []})])
def test_an_unknown_endpoint_hears_its_name(path: str, body: dict[str, Any], address: str) -> None:
    answer = httpx.post(f"{address}/{path}", json=body)
    assert answer.status_code == 400
    assert "There is no endpoint 'subtract' here; /gradio_api/info lists" in answer.json()["detail"]


@pytest.mark.parametrize("values", [[1], [1, 2, 3]])
def test_too_few_and_too_many_values_are_counted(values: list[int], address: str) -> None:
    event = httpx.post(f"{address}/add", json={"data": values}).json()["event_id"]
    told = httpx.get(f"{address}/add/{event}").text
    assert f"{len(values)} values came and 2 are wanted: give all, or arguments by name." in told
