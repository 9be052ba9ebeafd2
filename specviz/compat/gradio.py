"""Undocumented gradio behaviours that SpecViz needs. Each section names the version where they were first seen."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import gradio as gr
import gradio.state_holder
from gradio.block_function import BlockFunction
from gradio.blocks import Block
from gradio.context import get_blocks_context
from gradio.route_utils import API_PREFIX, FnIndexInferError
from gradio.routes import templates
from gradio.state_holder import SessionState
from gradio_client.utils import traverse
from jinja2 import FunctionLoader

from specviz.compat.gradio_answers import Answers

# ---- addresses and files (6.0)

PAGE_ADDRESSES = (
    *("config", r"theme\.css", r"favicon\.ico", r"manifest\.json", r"robots\.txt", "pwa_icon"),
    *("assets/.+", "static/.+", "svelte/.+", "mcp(/.*)?"),
)
"""Patterns of the addresses that the page needs besides "/"."""
API_ADDRESSES = (
    *("info", r"openapi\.json", "app_id", "login_check", "user", "startup-events"),
    *(r"theme\.css", "reset", "cancel"),
    *("queue/(join|data|status)", "heartbeat/[^/]+", "run/[^/]+", "api/[^/]+", "call/[^/]+(/[^/]+){0,2}"),
    *("mcp(/.*)?", r"file=(?!\w{2,}:).*"),
)
"""Patterns of the addresses below `API_PREFIX` that the page, a client or an assistant needs.

Gradio has more, which are left out: uploads (an interrupted one leaves its file), screen recording, fetching from other servers, the
editor, other people's run histories, and links that store a session on disk.
"""
EVENT_ADDRESS = r"/(run|api)/[^/]+/?$"
"""Pattern of the addresses that answer an event at once, without the queue. Every failure of such an event has status 500."""

NO_ANSWER = b'event: error\ndata: "404: Not Found"\n\n'
"""What gradio streams when a client fetches an answer that does not exist."""


def lacks_endpoint(error: Exception, name: str) -> bool:
    """Whether gradio raised `error` because there is no endpoint `name`."""
    return isinstance(error, FnIndexInferError) or (
        isinstance(error, KeyError) and error.args == (f"/{name}",)
    )


def served_address(file: Path) -> str:
    """Let gradio serve this file, but no other beside it. Returns its address relative to the page.

    The address is relative because a proxy may serve the page below any path.
    """
    gr.set_static_paths([file])
    return f"{API_PREFIX.lstrip('/')}/file={quote(file.resolve().as_posix())}"


def has_file(values: list[Any]) -> bool:
    """Whether an event's values contain what gradio takes for a file: an object with a "path"."""
    found: list[Any] = []
    traverse(values, found.append, lambda part: isinstance(part, dict) and "path" in part)
    return bool(found)


# ---- tools of assistants (6.30)


TOOLS_PATH = f"{API_PREFIX}/mcp"
"""Path at which assistants call tools."""


def is_tool_call(request: Any) -> bool:
    """Whether an event's request came over MCP.

    For a queued event, gradio itself makes the request and marks it with a header; otherwise it is the assistant's own request.
    """
    if request is None:
        return False
    path = getattr(getattr(request, "url", None), "path", "")
    return request.headers.get("x-gradio-user") == "mcp" or TOOLS_PATH in path


# ---- "Use via API" (6.31)


def label_endpoint(event: Any, parameters: Sequence[tuple[str, str]], answer: str) -> None:
    """Label the parameters and the answer of a `gr.api` in "Use via API", where gradio would only number them.

    `parameters` has a (label, description) for each input of the endpoint; `answer` is the label of its output.
    """
    blocks: Any = get_blocks_context()
    for key, (label, description) in zip(
        [*event["inputs"], *event["outputs"]], [*parameters, (answer, "")], strict=True
    ):
        block = blocks.blocks[key]
        block.label = label
        block._api_info = {**block._api_info, "additional_description": description}


# ---- events (6.0)
# `gr.Blocks.process_api` serves an event and calls `preprocess_data` to read its values. Override both to turn failures into messages.


def then_always(event: Any, fn: Callable[..., Any] | None, inputs: Any, outputs: Any, **options: Any) -> None:
    """Run `fn` (if None, only the `js` in `options`) after an event, whether it succeeded or failed.

    In 6.31 `then` alone does not run after some failures, such as a full queue, although its documentation says so.
    """
    event.then(fn, inputs, outputs, **options)
    event.failure(fn, inputs, outputs, **options)


def own_events(names: Sequence[str]) -> str:
    """JavaScript that declares custom events to a `gr.HTML`, which searches its JavaScript for their quoted names (6.31)."""
    return "".join(f'\n// "{name}"' for name in names)


def event_data(event: gr.EventData) -> Any:
    """The data that the browser sent with an event; untrusted."""
    return event._data


# ---- a server that stays up (6.0)


class LastingBlocks(gr.Blocks):
    """Blocks for a page that is served for weeks: they store little about events and sessions, and their queue never stops."""

    def get_block_name(self) -> str:
        """The name of `gr.Blocks`: the browser knows no other."""
        return "blocks"

    def queue(self, *args: Any, answers: Callable[[Any], Answers] = Answers, **options: Any) -> LastingBlocks:
        """As `gr.Blocks.queue`, but sessions store no values and the queue polls less. `answers(queue)` holds the unread messages."""
        super().queue(*args, **options)
        gradio.state_holder.SessionState = _SessionWithoutValues  # type: ignore[misc]
        queue: Any = self._queue
        # After every event gradio tabulates the last ten thousand, for figures that are not shown here.
        queue.ANALYTICS_MAX_EVENTS, queue.ANAYLTICS_CACHE_FREQUENCY = 1, sys.maxsize
        # At gradio's 1 kHz, polling takes a twelfth of the GIL during decoding; 100 Hz delays events by 5 ms.
        queue.sleep_when_free, queue.progress_update_sleep_when_free = 0.01, 0.1
        answers(queue)
        return self

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: Any, state: SessionState | None
    ) -> list[Any]:
        """As `gr.Blocks.postprocess_data`: what an event's function returned, as the browser gets it.

        In 6.31 an update of a `gr.HTML` without props, such as `gr.skip()`, removes all its props if the component is not yet
        on the page, so empty props are left out.
        """
        found = await super().postprocess_data(block_fn, predictions, state)
        for block in block_fn.outputs:
            if state and isinstance(block, gr.HTML):  # store no update: only the browser needs it
                state.blocks_config.blocks[block._id] = block
        for update in found:
            if isinstance(update, dict) and update.get("__type__") == "update" and "props" in update:
                update["props"].pop("__type__", None)
                if not update["props"]:
                    del update["props"]
        return found


class _SessionWithoutValues(SessionState):
    """A session's state, without the values that were sent to its page. Gradio stores them for links to a session.

    Such links are not served here, and the values would be prompts and traces, which a server must not store. Gradio has no option
    for this, but its `StateHolder` looks this class up by name in its module, so it can be replaced there.
    """

    def __init__(self, blocks: gr.Blocks) -> None:
        without: Any = SimpleNamespace(default_config=blocks.default_config, blocks={})
        super().__init__(without)

    def __setitem__(self, key: int, value: Any) -> None:
        """Store only values of `gr.State`, and components whose settings have changed, such as choices.

        Gradio makes a new component for each update, even for `gr.skip()`.
        """
        block = self.blocks_config.blocks.get(key)
        if block is None or block.stateful or _settings(value) != _settings(block):
            super().__setitem__(key, value)
            self.config_values.clear()

    def _update_config(self, key: int) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


def _settings(block: Block) -> dict[str, Any]:
    return {name: each for name, each in block.constructor_args.items() if name not in ("value", "render")}


# ---- the page in the browser (6.30)

UNPADDED = "\nelement.parentElement.style.padding = 0;"
"""JavaScript for the mount of a `gr.HTML`: removes its box's padding, which remains even if `padding` is false."""
STYLE, SCRIPT = (Path(__file__).with_name(name).read_text("utf-8") for name in ("gradio.css", "gradio.js"))
"""Rules and JavaScript for the page's head."""


def serve_head(page: gr.Blocks, html: str) -> None:
    """Put `html` into the head of the page that is served, in place of gradio's tags for link previews.

    The `head` argument of gradio's `launch` is added by a script after gradio has loaded: too late for fonts and the first paint, and
    sites that preview links never see it.
    """
    _heads[page.app_id] = html
    if "specviz_head" in templates.env.filters:
        return
    loader: Any = templates.env.loader

    def with_head(name: str) -> str:
        source, *_ = loader.get_source(templates.env, name)
        source = _SOCIAL.sub(rf"{{% if not ({_HEAD}) %}}\g<0>{{% endif %}}", source)
        return _BASE.sub(rf"\g<0>{{{{ {_HEAD} | safe }}}}", source)

    templates.env.filters["specviz_head"] = lambda app: _heads.get(app, "")
    templates.env.loader = FunctionLoader(with_head)


_heads: dict[int, str] = {}
"""The `html` of `serve_head`, by the page's `app_id`."""
_HEAD = "config.app_id | specviz_head"
_SOCIAL = re.compile(r"<meta\s+(?:property=\"og:|name=\"twitter:)[^>]*>")
_BASE = re.compile(r"<base [^>]*>")
