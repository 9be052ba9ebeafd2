"""The stand-in hub's server: what huggingface_hub asks of HF_ENDPOINT, and the faults of a real hub.

Speaks model info, listings, access checks, and files by HEAD and GET with etags, sizes and ranges. Weights are behind a redirect, as on the
real hub, where they come from another host.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.stand_in_hub.repositories import RECIPES, commit, write

GOOD_TOKEN = "hf_accepted"
"""Of someone who has accepted every licence."""
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


@dataclass
class _Planned:
    fault: Answer | Slow | BreakOff
    repository: str
    files: str
    times: int


class StandInHub:
    """The server, while it is used as a context manager. Repositories are made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        """Keep repositories in `folder`."""
        self._folder = folder
        self._lock = threading.Lock()
        self._planned: list[_Planned] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
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
        self, fault: Answer | Slow | BreakOff, repository: str = "*", files: str = "*", times: int = 1 << 30
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

    def fault(self, repository: str, file: str, kind: type) -> Any:
        """The fault of a kind that a request meets; None where it meets none. Counts it."""
        with self._lock:
            for planned in self._planned:
                matches = fnmatch(repository, planned.repository) and fnmatch(file, planned.files)
                if planned.times and matches and isinstance(planned.fault, kind):
                    planned.times -= 1
                    return planned.fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> StandInHub:
        return self.server.hub  # type: ignore[attr-defined,no-any-return]

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        with contextlib.suppress(ConnectionError):
            match path.strip("/").split("/"):
                case ["cdn", owner, name, file]:
                    self._file(f"{owner}/{name}", file, {})
                case ["api", "models", owner, name, *rest]:
                    self._of_repository(f"{owner}/{name}", rest)
                case [owner, name, "resolve", _, file]:
                    self._of_repository(f"{owner}/{name}", [], file)
                case _:
                    self._send(b"the stand-in hub")

    do_HEAD = do_GET  # noqa: N815  # a name of http.server

    def _of_repository(self, repository: str, rest: list[str], file: str = "") -> None:
        """Answer for a file, or for what else `rest` asks of a repository, unless that is missing or gated."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        # Anybody may read the description of a gated one and the names of its files.
        is_closed = RECIPES.get(repository, {}).get("gated") and (file or rest == ["auth-check"])
        if planned := self.hub.fault(repository, file, Answer):
            self._refuse(planned.status)
        elif repository not in RECIPES:
            # As the real one: who is not known does not hear whether it is missing or private.
            self._refuse(404 if token else 401, "RepoNotFound")
        elif is_closed and token != GOOD_TOKEN:
            self._refuse(403 if token else 401, "GatedRepo")
        elif file:
            self._resolve(repository, file)
        else:
            self._describe(repository, rest)

    def _describe(self, repository: str, rest: list[str]) -> None:
        entries = [_entry(file) for file in sorted(self.hub.folder(repository).iterdir())]
        if rest == ["auth-check"]:
            self._send(b"OK")
        elif rest[:1] == ["tree"]:
            self._json(entries)
        else:
            siblings = [{"rfilename": each["path"], "size": each["size"]} for each in entries]
            gated = "manual" if RECIPES[repository].get("gated") else False
            about = {"id": repository, "sha": commit(repository), "gated": gated}
            self._json(about | {"siblings": siblings, "private": False, "disabled": False, "tags": []})

    def _resolve(self, repository: str, name: str) -> None:
        file = self.hub.folder(repository) / name
        told = {"X-Repo-Commit": commit(repository)}
        if not file.is_file():
            self._refuse(404, "EntryNotFound", told)
        elif _is_large(name):
            told |= {"X-Linked-Size": str(file.stat().st_size), "X-Linked-Etag": f'"{_tag(file)}"'}
            # By another name of this machine: clients take it for another host, to which no token goes.
            elsewhere = self.hub.endpoint.replace("127.0.0.1", "localhost")
            self._send(b"", told | {"Location": f"{elsewhere}/cdn/{repository}/{name}"}, 302)
        else:
            self._file(repository, name, told)

    def _file(self, repository: str, name: str, told: dict[str, str]) -> None:
        """A file or the rest of it that is asked for, as slowly and as incompletely as planned."""
        file = self.hub.folder(repository) / name
        content = file.read_bytes()
        size = len(content)
        told = {**told, "ETag": f'"{_tag(file)}"', "Accept-Ranges": "bytes"}
        if wanted := self.headers.get("Range", ""):
            first = int(wanted.removeprefix("bytes=").partition("-")[0])
            content = content[first:]
            told["Content-Range"] = f"bytes {first}-{size - 1}/{size}"
        self._start(told | {"Content-Length": str(len(content))}, 206 if wanted else 200)
        if self.command == "HEAD":
            return
        slow, broken = (self.hub.fault(repository, name, kind) for kind in (Slow, BreakOff))
        most = int(len(content) * broken.share) if broken else len(content)
        for begin in range(0, most, _PIECE):
            piece = content[begin : min(begin + _PIECE, most)]
            self.wfile.write(piece)
            if slow:
                time.sleep(len(piece) / slow.bytes_per_second)
        self.close_connection = bool(broken)

    def _json(self, value: Any) -> None:
        self._send(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str = "", headers: dict[str, str] | None = None) -> None:
        told = {**(headers or {}), **({"X-Error-Code": code} if code else {})}
        self._send(json.dumps({"error": code or f"answer {status}"}).encode(), told, status)

    def _send(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self._start({**(headers or {}), "Content-Length": str(len(body))}, status)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _start(self, headers: dict[str, str], status: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin"))


def _tag(file: Path) -> str:
    """The name of a file in a client's cache."""
    return tag(file.read_bytes(), _is_large(file.name))


def tag(content: bytes, is_large: bool) -> str:
    """The name of a content in a client's cache: git's id, or the sha256 of a large one."""
    if is_large:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(file: Path) -> dict[str, Any]:
    """A file in the listing of a repository."""
    size, tag = file.stat().st_size, _tag(file)
    large = {"lfs": {"oid": tag, "size": size, "pointerSize": 134}} if _is_large(file.name) else {}
    return {"type": "file", "path": file.name, "size": size, "oid": tag} | large
