"""The API as it is served, on the embedded pair: every example of docs/api.md, HTTP, MCP, and how runs end and fail."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from specviz.serving.service import Service
from tests.support.waiting import wait_until

DOCUMENT = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:7860"


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False)


def examples() -> list[Any]:
    """Every block of code in the document, with the output that is shown after it, if there is one."""
    found: list[list[str]] = []
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE):
        if kind == "text":
            found[-1][-1] = text
        else:
            found.append([kind, text, ""])
    return [pytest.param(*each, id=f"{number}-{each[0]}") for number, each in enumerate(found, 1)]


def ended(service: Service) -> Counter[str]:
    """How many texts have ended, by reason."""
    return sum((Counter(tally.finished) for tally in service.status()), Counter())


@pytest.mark.parametrize(("kind", "code", "shown"), examples())
def test_the_documented_examples_run(
    service: Service, address: str, capsys: pytest.CaptureFixture, kind: str, code: str, shown: str
) -> None:
    """Each example does what the document says: it prints what is shown, and who goes away ends the run."""
    goes_away = "400" in code  # an address may have such a port
    code = code.replace(ADDRESS, address)
    assert ADDRESS not in code
    cancelled = ended(service)["cancelled"]
    if kind == "python":
        exec(compile(code, "docs/api.md", "exec"), {"__name__": "example"})
        output = capsys.readouterr().out
    else:
        output = subprocess.run(["bash", "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == shown.strip() if shown else output.strip()
    assert shown or "event: error" not in output
    if goes_away:
        wait_until(lambda: ended(service)["cancelled"] == cancelled + 1)
    assert ended(service)["failed"] == 0


ENDPOINTS = {"generate", "compare", "methods", "pairs"}


def test_client_and_assistant_are_offered_the_four_endpoints_and_no_others(
    client: Client, address: str
) -> None:
    """What the page's own buttons do is no endpoint; an assistant gets words for every argument."""
    offered: Any = client.view_api(return_format="dict", print_info=False)
    assert set(offered["named_endpoints"]) == {f"/{name}" for name in ENDPOINTS}
    assert not offered["unnamed_endpoints"]
    tools = mcp(address, lambda session: session.list_tools()).tools
    assert {tool.name for tool in tools} == ENDPOINTS
    assert all(tool.description for tool in tools)
    assert all(each["description"] for tool in tools for each in tool.inputSchema["properties"].values())


def mcp(address: str, work: Callable[[ClientSession], Awaitable[Any]]) -> Any:
    """What `work` gives in an MCP session."""

    async def session() -> Any:
        async with (
            streamablehttp_client(f"{address}/gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await work(session)

    return asyncio.run(session())


def test_mcp_answers_in_json(address: str, client: Client) -> None:
    """A tool's text is what a client gets, whether the assistant is told of progress or not; an error is a result."""

    async def progress(*_: Any) -> None:
        pass

    panes = [{}, {"method": "speed"}]
    for tool, arguments, told in (
        ("generate", {"prompt": "Hi", "max_new_tokens": 4, "trace": True}, None),
        ("compare", {"prompt": "Hi", "panes": panes, "max_new_tokens": 4}, progress),
        ("methods", {}, None),
        ("pairs", {}, progress),
    ):
        call = partial(ClientSession.call_tool, name=tool, arguments=arguments, progress_callback=told)
        (content,) = mcp(address, call).content
        answer, expected = json.loads(content.text), client.predict(**arguments, api_name=f"/{tool}")
        if isinstance(expected, dict):
            assert answer.keys() == expected.keys()
            assert answer.get("text") == expected.get("text")
        else:
            assert answer == expected
    for wrong, named in (({"colour": 1}, "colour"), ({"lenience": 2}, "Lenience 2 does not fit")):
        call = partial(ClientSession.call_tool, name="generate", arguments={"prompt": "Hi"} | wrong)
        result = mcp(address, call)
        assert result.isError
        assert named in result.content[0].text
