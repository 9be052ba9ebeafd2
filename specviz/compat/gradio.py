"""What SpecViz needs of gradio that gradio does not document, with the version in which it was first seen."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import gradio as gr
import gradio.state_holder
from gradio.block_function import BlockFunction
from gradio.blocks import Block
from gradio.context import get_blocks_context
from gradio.route_utils import API_PREFIX, FnIndexInferError, get_root_url
from gradio.routes import templates
from gradio.state_holder import SessionState
from gradio_client.utils import traverse
from jinja2 import BaseLoader

from specviz.compat.gradio_answers import Answers
from specviz.errors import SpecvizError

# ---- addresses and files (6.0)

PAGE_ADDRESSES = (
    *("config", r"theme\.css", r"favicon\.ico", r"manifest\.json", r"robots\.txt", "pwa_icon"),
    *("assets/.+", "static/.+", "svelte/.+", "mcp(/.*)?"),
)
"""Patterns of the addresses that a page needs, beside "/" itself."""
API_ADDRESSES = (
    *("info", r"openapi\.json", "app_id", "login_check", "user", "startup-events"),
    *(r"theme\.css", "reset", "cancel"),
    *("queue/(join|data|status)", "heartbeat/[^/]+", "run/[^/]+", "api/[^/]+", "call/[^/]+(/[^/]+){0,2}"),
    *("mcp(/.*)?", r"file=(?!\w{2,}:).*"),
)
"""Patterns of the addresses below `API_PREFIX` that a page, a client or an assistant needs.

Left out, because gradio answers them too: uploads, whose files stay where they break off, recording the screen, fetching from other servers, the editor, other people's
run histories, and links that keep a session on disk.
"""
EVENT_ADDRESS = r"/(run|api)/[^/]+/?$"
"""Where an event is answered at once, without the queue: a failure is always status 500 there."""

NO_ANSWER = b'event: error\ndata: "404: Not Found"\n\n'
"""What gradio streams to whoever fetches an answer that is not there."""


def lacks_endpoint(error: Exception, name: str) -> bool:
    """Whether gradio has failed because there is no endpoint of that name."""
    return isinstance(error, FnIndexInferError) or (
        isinstance(error, KeyError) and error.args == (f"/{name}",)
    )


def served_address(file: Path) -> str:
    """Let gradio serve one file, and nothing beside it; its address, relative to the page's own.

    Relative, because behind a proxy the page's address may begin with anything.
    """
    gr.set_static_paths([file])
    return f"{API_PREFIX.lstrip('/')}/file={quote(file.resolve().as_posix())}"


def page_address(page: gr.Blocks, request: Any, path: str) -> str:
    """The address of the page, without a slash at its end, as the sender of a request for `path` sees it."""
    return get_root_url(request, path, page.root_path)


def has_file(values: list[Any]) -> bool:
    """Whether there is a file among the values of an event, as gradio looks for them: an object with a "path"."""
    found: list[Any] = []
    traverse(values, found.append, lambda part: isinstance(part, dict) and "path" in part)
    return bool(found)


# ---- tools of assistants (6.30)


TOOLS_PATH = f"{API_PREFIX}/mcp"
"""Where assistants call tools."""


def is_tool_call(request: Any) -> bool:
    """Whether an event was called over MCP, given its request.

    Gradio sends a queued event to itself in this header's name, and hands any other event the assistant's own request.
    """
    if request is None:
        return False
    path = getattr(getattr(request, "url", None), "path", "")
    return request.headers.get("x-gradio-user") == "mcp" or TOOLS_PATH in path


def structure_tools(
    page: gr.Blocks,
    schemas: Mapping[str, dict[str, Any]],
    check: Callable[[str, dict[str, Any]], None],
) -> None:
    """Let the tools of a served page declare the schemas of their answers, by endpoint, and answer with such objects beside the text.

    A list becomes the "result" of an object. What `check` raises is the answer to a call with such arguments.

    In 6.31 gradio declares no schema. Its own `structured_output` sends the text once more, and its messages name no argument. The
    handlers are those of the package mcp, which lets them be replaced.
    """
    server: Any = page.mcp_server_obj
    if server is None:
        return
    from mcp import types

    handlers = server.mcp_server.request_handlers
    list_tools, call_tool = handlers[types.ListToolsRequest], handlers[types.CallToolRequest]

    async def list_with_schemas(request: Any) -> Any:
        answer = await list_tools(request)
        for tool in answer.root.tools:
            tool.outputSchema = schemas[server.tool_to_endpoint[tool.name].lstrip("/")]
        return answer

    async def call_with_structure(request: Any) -> Any:
        endpoint = server.tool_to_endpoint.get(request.params.name)
        try:
            if endpoint:
                check(endpoint.lstrip("/"), request.params.arguments or {})
        except SpecvizError as error:
            failed = types.CallToolResult(
                content=[types.TextContent(type="text", text=str(error))], isError=True
            )
            return types.ServerResult(failed)
        answer = await call_tool(request)
        if not answer.root.isError:
            found = json.loads(answer.root.content[0].text)
            answer.root.structuredContent = found if isinstance(found, dict) else {"result": found}
        return answer

    handlers.update({types.ListToolsRequest: list_with_schemas, types.CallToolRequest: call_with_structure})


# ---- "Use via API" (6.31)


def label_endpoint(event: Any, parameters: Sequence[tuple[str, str]], answer: str) -> None:
    """Label the parameters and the answer of a `gr.api` in "Use via API", where gradio counts them: "1st", "2nd".

    `parameters` has a label and a description of each.
    """
    blocks: Any = get_blocks_context()
    for key, (label, description) in zip(
        [*event["inputs"], *event["outputs"]], [*parameters, (answer, "")], strict=True
    ):
        block = blocks.blocks[key]
        block.label = label
        block._api_info = {**block._api_info, "additional_description": description}


# ---- events (6.0)
# `gr.Blocks.process_api` serves an event, and within it `preprocess_data` reads its values: override them to let an event fail in a sentence.


def runs_in_browser(event: BlockFunction) -> bool:
    """Whether an event has no function on the server. Called nevertheless, gradio breaks."""
    return event.fn is None


def is_selection(event: BlockFunction) -> bool:
    """Whether an event is fired by a choice, whose function is handed `gr.SelectData`."""
    return any(name == "select" for _, name in event.targets)


def selection(data: gr.EventData | None) -> dict[str, Any] | None:
    """The choice as the browser sent it; None where it sent none."""
    sent = data._data if data is not None else None
    return sent if isinstance(sent, dict) and {"index", "value"} <= sent.keys() else None


def then_always(event: Any, fn: Callable[..., Any] | None, inputs: Any, outputs: Any, **options: Any) -> None:
    """Run `fn`, or only the `js` of the options, after an event has ended, also where it failed.

    In 6.31 what `then` adds is left out after a failure such as a full queue, against its documentation.
    """
    event.then(fn, inputs, outputs, **options)
    event.failure(fn, inputs, outputs, **options)


def own_events(names: Sequence[str]) -> str:
    """What makes events of one's own known to a `gr.HTML`: it looks for their names, in quotes, in its JavaScript (6.31)."""
    return "".join(f'\n// "{name}"' for name in names)


def event_data(event: gr.EventData) -> Any:
    """What the browser sent with an event, untrusted."""
    return event._data


# ---- a server that stays up (6.0)


class LastingBlocks(gr.Blocks):
    """Blocks for a page that is served for weeks: keeps of events and sessions only what they need, and never stops."""

    def __init__(
        self,
        *,
        max_size: int | None = None,
        api_open: bool | None = None,
        answers: Callable[[Any], Answers] = Answers,
        **options: Any,
    ) -> None:
        """Blocks with a queue of these options, which are those of `queue`, whose answers `answers` keeps; the others as for `gr.Blocks`.

        Gradio makes a queue with the blocks, and another one where `queue` is called afterwards.
        """
        self._answers = answers
        self._queue_options = {"max_size": max_size, "api_open": api_open}
        super().__init__(**options)

    def get_block_name(self) -> str:
        """The parent's: the browser knows no other."""
        return "blocks"

    def queue(self, *args: Any, **options: Any) -> LastingBlocks:
        """Gradio's queue and sessions, with the changes below."""
        super().queue(*args, **self._queue_options | options)
        gradio.state_holder.SessionState = _SessionWithoutValues  # type: ignore[misc]
        queue: Any = self._queue
        # Gradio makes a table of the last ten thousand events after every event, for figures that are not shown here.
        queue.ANALYTICS_MAX_EVENTS, queue.ANAYLTICS_CACHE_FREQUENCY = 1, sys.maxsize
        # Its polling, a thousand times a second, takes a twelfth of Python's lock while texts are written. Events begin 5 ms later so.
        queue.sleep_when_free, queue.progress_update_sleep_when_free = 0.01, 0.1
        survive_gone_sessions(queue)
        self._answers(queue)
        return self

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: Any, state: SessionState | None
    ) -> list[Any]:
        """What an event's function returned, for the browser.

        In 6.31 an update of a `gr.HTML` that names none of its props, such as `gr.skip()`, takes them all away where the
        component is not on the page yet.
        """
        found = await super().postprocess_data(block_fn, predictions, state)
        for block in block_fn.outputs:
            if state and isinstance(block, gr.HTML):  # its props are for the browser alone
                state.blocks_config.blocks[block._id] = block
        for update in found:
            if isinstance(update, dict) and update.get("__type__") == "update" and "props" in update:
                update["props"].pop("__type__", None)
                if not update["props"]:
                    del update["props"]
        return found


class _SessionWithoutValues(SessionState):
    """A session's state without the values that the page was sent in it, which gradio keeps for links to a session.

    Such links are not served here, and the values would be prompts and traces, which a server must not keep. No option of gradio's
    leaves them out; its `StateHolder` looks the class up by its name in the module.
    """

    def __init__(self, blocks: gr.Blocks) -> None:
        without: Any = SimpleNamespace(default_config=blocks.default_config, blocks={})
        super().__init__(without)

    @property
    def config_values(self) -> dict[int, Any]:
        """Always empty."""
        return {}

    @config_values.setter
    def config_values(self, values: dict[int, Any]) -> None:
        pass

    def __setitem__(self, key: int, value: Any) -> None:
        """Keep a value of `gr.State`, or a component whose settings are new, such as choices.

        Gradio makes a component anew for each update, also for `gr.skip()`.
        """
        block = self.blocks_config.blocks.get(key)
        if block is None or block.stateful or _settings(value) != _settings(block):
            super().__setitem__(key, value)

    def _update_config(self, key: int) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


def _settings(block: Block) -> dict[str, Any]:
    return {name: each for name, each in block.constructor_args.items() if name not in ("value", "render")}


def survive_gone_sessions(queue: Any) -> None:
    """Go on where gradio's queue stops for everybody: at a message for a session that has just gone."""
    send = queue.send_message

    def send_if_there(event: Any, message: Any) -> None:
        try:
            send(event, message)
        except KeyError:
            event.alive = False

    queue.send_message = send_if_there


# ---- the page in the browser (6.30)

UNPADDED = "\nelement.parentElement.style.padding = 0;"
"""JavaScript when a `gr.HTML` mounts: takes away the padding that its box has even where `padding` is false."""
STYLE, SCRIPT = (Path(__file__).with_name(name).read_text("utf-8") for name in ("gradio.css", "gradio.js"))
"""Rules and JavaScript for the page's head."""


@cache
def theme_variables() -> set[str]:
    """The names that a theme's `set` takes; a dark value is one of its own, with "_dark" at the end of its name."""
    return set(signature(gr.themes.Base.set).parameters)


def serve_head(page: gr.Blocks, html: str) -> None:
    """Put `html` into the head of the page as it is served, in place of gradio's own words for link previews.

    What gradio's `launch` takes as "head" comes by script, after all that gradio loads first: too late for fonts and for the first
    paint, and never for a site that shows a preview of a link.
    """
    _heads[page.app_id] = html
    if not isinstance(templates.env.loader, _Headed):
        templates.env.filters["specviz_head"] = lambda app: _heads.get(app, "")
        templates.env.loader = _Headed(templates.env.loader)


_heads: dict[int, str] = {}
"""By the id of the app."""
_SOCIAL = re.compile(r"<meta\s+(?:property=\"og:|name=\"twitter:)[^>]*>")
_BASE = re.compile(r"<base [^>]*>")
_HEAD = "config.app_id | specviz_head"


class _Headed(BaseLoader):
    """Gradio's templates, each with a place for a head of ours, and without gradio's own previews where there is one."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def get_source(self, environment: Any, template: str) -> Any:
        """The template's text, changed, where it is read from, and whether that is still so."""
        source, *more = self._loader.get_source(environment, template)
        source = _SOCIAL.sub(lambda tag: f"{{% if not ({_HEAD}) %}}{tag[0]}{{% endif %}}", source)
        return _BASE.sub(lambda tag: f"{tag[0]}\n{{{{ {_HEAD} | safe }}}}", source), *more
