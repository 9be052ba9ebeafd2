"""The doors: ways to use a server besides plain API calls: as the page, as an assistant, and as a client that leaves or is broken.

Each door takes the index of a request, and must return the same for it every time.
"""

from __future__ import annotations

import base64
import gzip
import json
import secrets
import socket
from typing import Any

import httpx
from httpx_sse import EventSource

from specviz.errors import BusyError, EngineError
from specviz.schema.settings import arguments
from specviz.schema.trace import parse_trace

_API = "/gradio_api"
_BROKEN: tuple[tuple[str, bytes], ...] = (
    ("/queue/join", b"{"),
    ("/queue/join", b'{"data": [], "fn_index": 100000, "session_hash": "broken"}'),
    ("/call/v2/generate", b'{"prompt": 1, "no_such_argument": "\\ud800"}'),
    ("/mcp/", b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}'),
    ("/upload", b"--B\r\n"),
)


class Doors:
    """The doors of a server, for one user.

    They raise BusyError where the server refused, EngineError where it failed, and httpx.HTTPError.
    """

    NAMES = ("page", "closed_tab", "fork", "opened_trace", "tool", "rule", "unread", "broken")

    def __init__(
        self, plan: dict[str, Any], endpoint: str, requests: list[list[Any]], traces: list[str], config: Any
    ) -> None:
        """`requests` has arguments of `endpoint`, `traces` what it answered; `config` is gradio's description of the page."""
        self._http = httpx.Client(base_url=plan["address"].rstrip("/"), timeout=60, trust_env=False)
        self._endpoint, self._traces = endpoint, traces
        self._requests = [dict(zip(arguments(endpoint), each, strict=True)) for each in requests]
        self._events = config["dependencies"]
        self._values = {each["id"]: each["props"].get("value") for each in config["components"]}
        self._ids = {each["props"].get("elem_id"): each["id"] for each in config["components"]}

    def page(self, index: int, patience: int | None = None) -> str:
        """Run a request on the tab One run; returns its text."""
        asked, view = self._requests[index], self._ids["view"]
        run = next(
            e for e in self._events if [self._ids["run"], "click"] in e["targets"] and view in e["outputs"]
        )
        own = {
            self._ids[name]: asked[name.replace("-", "_")] for name in ("prompt", "seed", "max-new-tokens")
        }
        data = self._event(
            run["id"], [(self._values | own)[each] for each in run["inputs"]], patience=patience
        )
        return _text(data[run["outputs"].index(view)]) if data else ""

    def closed_tab(self, index: int) -> None:
        """Start a run and leave after the first messages."""
        self.page(index, 2 + index % 4)

    def fork(self, index: int) -> str:
        """Fork a text in its middle without a change; returns the new rest."""
        trace = self._traces[index]
        half = len(parse_trace(trace.split("\n")).tokens) // 2
        sent = {"trace": trace, "tokens": half, "chosen": None, "changes": {}, "id": index}
        (update,) = self._event(self._view_event("fork"), [], sent)
        return _text(update["props"]["branch"])

    def opened_trace(self, index: int) -> str:
        """Open a trace; returns what the page shows of it."""
        packed = base64.b64encode(gzip.compress(self._traces[index].encode())).decode()
        event = {"fn_index": self._view_event("open"), "data": [], "session_hash": _session()}
        return str(self._post("/run/predict", event | {"event_data": packed}).json()["data"][0])

    def tool(self, index: int) -> str:
        """Call the endpoint as an assistant's tool; returns the text."""
        asked = {name: value for name, value in self._requests[index].items() if value is not None}
        call = {"name": self._endpoint, "arguments": asked}
        answer = self._post("/mcp/", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        result = json.loads(answer.text.partition("data: ")[2])["result"]
        if result.get("isError"):
            raise failure_of(result["content"][0]["text"])
        return str(json.loads(result["content"][0]["text"])["text"])

    def rule(self, index: int) -> bool:
        """Type a rule that nobody has typed before; returns whether it is understood."""
        text = f"q(v) >= {secrets.randbelow(10**9)} * max p{index % 3}"
        return "tree" in self._http.get("/rule", params={"text": text}).raise_for_status().json()

    def unread(self, index: int) -> None:
        """Request an answer and never fetch it."""
        self._post(f"/call/v2/{self._endpoint}", self._requests[index])

    def broken(self, index: int) -> int:
        """Send a body that ends too soon, then a wrong one; returns the status of the answer to the second."""
        path, body = _BROKEN[index % len(_BROKEN)]
        url = self._http.base_url
        head = f"POST {_API}{path} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {len(body) + 9}\r\n\r\n"
        with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
            connection.sendall(head.encode() + body)
        return self._http.post(
            _API + path, content=body, headers={"content-type": "application/json"}
        ).status_code

    def _view_event(self, name: str) -> int:
        return next(each["id"] for each in self._events if [self._ids["view"], name] in each["targets"])

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        accepts = {"accept": "application/json, text/event-stream"}
        answer = self._http.post(_API + path, json=body, headers=accepts)
        if answer.status_code == 503:
            raise BusyError(answer.text)
        return answer.raise_for_status()

    def _event(self, fn: int, data: list[Any], sent: Any = None, patience: int | None = None) -> list[Any]:
        """The data of a queued event in a tab of its own; [] if the tab is closed after `patience` messages."""
        session = _session()
        with self._http.stream("GET", f"{_API}/heartbeat/{session}"):
            event = {"fn_index": fn, "data": data, "event_data": sent, "session_hash": session}
            self._post("/queue/join", event)
            with self._http.stream("GET", f"{_API}/queue/data", params={"session_hash": session}) as stream:
                messages = (event.json() for event in EventSource(stream).iter_sse())
                for count, message in enumerate(messages, 1):
                    if message["msg"] == "process_completed":
                        if not message["success"]:
                            raise failure_of(str(message["output"].get("error")))
                        return list(message["output"]["data"])
                    if count == patience:
                        return []
        raise EngineError("The stream ended before the event.")


def _session() -> str:
    return secrets.token_hex(6)


def _text(lines: str) -> str:
    """The text of a trace; skips lines that are only for the page."""
    records = [(json.loads(line), line) for line in lines.split("\n") if line]
    for record, _ in records:
        if record["type"] == "error":
            raise failure_of(record["message"])
    return parse_trace(line for record, line in records if record["type"] in ("run", "round", "end")).text


def failure_of(sentence: str) -> Exception:
    """What the sentence of a failed request means: the server refused, or failed."""
    return BusyError(sentence) if "busy" in sentence.lower() else EngineError(sentence)
