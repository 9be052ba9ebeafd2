"""The stand-in hub's server: what huggingface_hub asks of HF_ENDPOINT, and the faults of a real hub.

Speaks model info, listings, access checks, and files by HEAD and GET with etags, sizes and ranges. Weights are behind a redirect, as on the
real hub, where they come from another host. Every request is noted in `asked`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.stand_in_hub.repositories import RECIPES, commit, write

GOOD_TOKEN, OTHER_TOKEN = "hf_accepted", "hf_other"
"""Of someone who has accepted every licence, and of someone who has accepted none."""
_LARGE = ("*.safetensors", "*.bin")
_PIECE = 16_384  # bytes sent at once


@dataclass(frozen=True)
class Answer:
    """A fault: the hub answers with this status."""

    status: int


@dataclass(frozen=True)
class Slow:
    """A fault: the file comes at this many bytes a second."""

    bytes_per_second: float


@dataclass(frozen=True)
class BreakOff:
    """A fault: the connection is closed after this share of what is left of the file."""

    share: float = 0.5


Fault = Answer | Slow | BreakOff


@dataclass
class _Planned:
    fault: Fault
    repository: str
    files: str
    times: int


class StandInHub:
    """The server, while it is used as a context manager. Repositories are made when they are first asked for."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        """Keep repositories in `folder`; by default on a free port."""
        self._folder = folder
        self._lock = threading.Lock()
        self._planned: list[_Planned] = []
        self.asked: list[tuple[str, str]] = []
        """Method and path of every request."""
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.daemon_threads = True
        self._server.hub = self  # type: ignore[attr-defined]

    @property
    def endpoint(self) -> str:
        """The address for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> StandInHub:
        threading.Thread(target=self._server.serve_forever, name="stand-in-hub", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextlib.contextmanager
    def plays(
        self, fault: Fault, repository: str = "*", files: str = "*", times: int = 1 << 30
    ) -> Iterator[None]:
        """Play a fault for the next `times` requests of files, or of anything where `files` is "*", in these repositories.

        `repository` and `files` are patterns; what HEAD asks is not slow and does not break off.
        """
        planned = _Planned(fault, repository, files, times)
        with self._lock:
            self._planned.append(planned)
        try:
            yield
        finally:
            with self._lock:
                self._planned.remove(planned)

    def folder(self, repository: str) -> Path:
        """The files of a repository."""
        folder = self._folder / repository
        with self._lock:
            if not folder.exists():
                unfinished = folder.with_name(f"{folder.name}.unfinished")
                unfinished.mkdir(parents=True, exist_ok=True)
                write(repository, unfinished)
                unfinished.rename(folder)
        return folder

    def fault(self, repository: str, file: str, kinds: type | tuple[type, ...]) -> Any:
        """The fault of one of `kinds` that a request meets; None where it meets none. Counts it."""
        with self._lock:
            for planned in self._planned:
                matches = map(fnmatch.fnmatch, (repository, file), (planned.repository, planned.files))
                if planned.times and all(matches) and isinstance(planned.fault, kinds):
                    planned.times -= 1
                    return planned.fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> StandInHub:
        return self.server.hub  # type: ignore[attr-defined,no-any-return]

    def log_message(self, *_: Any) -> None:
        """Nothing: `StandInHub.asked` has it."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_GET  # noqa: N815  # a name of http.server

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path))
        parts = path.strip("/").split("/")
        with contextlib.suppress(ConnectionError):
            if path == "/":
                self._send(b"the stand-in hub")
            elif parts[0] == "cdn":
                self._file("/".join(parts[1:3]), "/".join(parts[3:]))
            elif parts[:2] == ["api", "models"]:
                self._of_repository(parts[2:], self._api)
            else:
                self._of_repository(parts, self._resolve)

    def _of_repository(self, parts: list[str], serve: Any) -> None:
        """Call `serve` with a repository and what comes after its name, unless it is missing or gated."""
        repository, rest = "/".join(parts[:2]), parts[2:]
        file = "/".join(rest[2:]) if rest[:1] == ["resolve"] else ""
        if planned := self.hub.fault(repository, file, Answer):
            self._refuse(planned.status)
        elif repository not in RECIPES:
            # As the real one: who is not known does not hear whether it is missing or private.
            self._refuse(404 if self._token else 401, "RepoNotFound")
        # Anybody may read the description of a gated one and the names of its files.
        elif (
            RECIPES[repository].get("gated")
            and self._token != GOOD_TOKEN
            and rest[:1] in (["resolve"], ["auth-check"])
        ):
            self._refuse(403 if self._token == OTHER_TOKEN else 401, "GatedRepo")
        else:
            serve(repository, rest)

    @property
    def _token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _api(self, repository: str, rest: list[str]) -> None:
        folder = self.hub.folder(repository)
        entries = [_entry(file) for file in sorted(folder.iterdir())]
        match rest:
            case [] | ["revision", _]:
                siblings = [{"rfilename": each["path"], "size": each["size"]} for each in entries]
                gated = "manual" if RECIPES[repository].get("gated") else False
                about = {"id": repository, "sha": commit(repository), "gated": gated}
                self._json(about | {"siblings": siblings, "private": False, "disabled": False, "tags": []})
            case ["tree", _]:
                self._json(entries)
            case ["auth-check"]:
                self._send(b"OK")
            case _:
                self._refuse(404, "EntryNotFound")

    def _resolve(self, repository: str, rest: list[str]) -> None:
        name = "/".join(rest[2:])
        file = self.hub.folder(repository) / name
        told = {"X-Repo-Commit": commit(repository)}
        if rest[:1] != ["resolve"] or not file.is_file():
            self._refuse(404, "EntryNotFound", told)
        elif _is_large(name):
            told |= {"X-Linked-Size": str(file.stat().st_size), "X-Linked-Etag": f'"{_tag(file)}"'}
            # By another name of this machine: clients take it for another host, to which no token goes.
            elsewhere = self.hub.endpoint.replace("127.0.0.1", "localhost")
            self._send(b"", told | {"Location": f"{elsewhere}/cdn/{repository}/{name}"}, 302)
        else:
            self._file(repository, name, told)

    def _file(self, repository: str, name: str, told: dict[str, str] | None = None) -> None:
        """A file or the range of it that is asked for, as slowly and as incompletely as planned."""
        file = self.hub.folder(repository) / name
        content = file.read_bytes()
        size, first = len(content), 0
        told = {**(told or {}), "ETag": f'"{_tag(file)}"', "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes="):
            begin, _, last = wanted.removeprefix("bytes=").partition("-")
            first, end = int(begin), int(last) + 1 if last else size
            content = content[first:end]
            told["Content-Range"] = f"bytes {first}-{first + len(content) - 1}/{size}"
        self.send_response(206 if wanted else 200)
        for header, value in {**told, "Content-Length": str(len(content))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        slow, broken = (self.hub.fault(repository, name, kind) for kind in (Slow, BreakOff))
        most = int(len(content) * broken.share) if broken else len(content)
        for begin in range(0, most, _PIECE):
            piece = content[begin : min(begin + _PIECE, most)]
            self.wfile.write(piece)
            if slow:
                time.sleep(len(piece) / slow.bytes_per_second)
        if broken:
            self.wfile.flush()
            self.close_connection = True

    def _json(self, value: Any) -> None:
        self._send(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str = "", headers: dict[str, str] | None = None) -> None:
        told = {**(headers or {}), **({"X-Error-Code": code} if code else {})}
        self._send(json.dumps({"error": code or f"answer {status}"}).encode(), told, status)


def _is_large(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in _LARGE)


def _tag(file: Path) -> str:
    """The name of a file in a client's cache."""
    return tag(file.read_bytes(), _is_large(file.name))


def tag(content: bytes, is_large: bool) -> str:
    """The name of a content in a client's cache: git's id, or the sha256 of a large one."""
    return (
        hashlib.sha256(content) if is_large else hashlib.sha1(b"blob %d\0" % len(content) + content)
    ).hexdigest()


def _entry(file: Path) -> dict[str, Any]:
    """A file in the listing of a repository."""
    size, tag = file.stat().st_size, _tag(file)
    large = {"lfs": {"oid": tag, "size": size, "pointerSize": 134}} if _is_large(file.name) else {}
    return {"type": "file", "path": file.name, "size": size, "oid": tag} | large
