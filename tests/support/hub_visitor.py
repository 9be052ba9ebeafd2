"""A visitor of a server on the stand-in hub: asks for pairs, hears refusals, empties the cache, logs in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.support.stand_in_hub import StandInHub
from tests.support.stand_in_hub.served import SECONDS
from tests.support.stand_in_hub.server import tag

PROMPT = "Why is the sky blue?"
SETTINGS: dict[str, Any] = {"method": "speed", "lenience": 0, "temperature": 0, "seed": 1}
FIRST = "gpt2"
"""The pair that the server begins with; its files stay in the cache."""


class Visitor:
    """Uses a server that holds one pair at a time."""

    def __init__(self, hub: StandInHub, home: Path, address: str) -> None:
        self.hub, self.home, self.address = hub, home, address
        self._client = Client(address, verbose=False, httpx_kwargs={"timeout": SECONDS})

    def write(self, pair: str, tokens: int = 4) -> str:
        """A text by the pair."""
        asked = SETTINGS | {"pair": pair, "max_new_tokens": tokens}
        return str(self._client.predict(PROMPT, api_name="/generate", **asked)["text"])

    def refusal(self, pair: str) -> str:
        """The one sentence that a pair is refused with; the server answers afterwards and no half file stays."""
        with pytest.raises(AppError) as refused:
            self.write(pair)
        sentence = str(refused.value)
        assert sentence.endswith(".")
        assert not {"\n", "Traceback", "http", str(self.home)} & set(sentence.split())
        assert httpx.get(f"{self.address}/healthz", timeout=5).status_code == 200
        assert not self.unfinished()
        return sentence

    def forget(self) -> None:
        """Unload the pair in memory and empty the cache, except for the first pair."""
        self.write(FIRST)
        for folder in (self.home / "hub").glob("models--*"):
            if "gpt2" not in folder.name:
                shutil.rmtree(folder)

    def log_in(self, token: str) -> None:
        """As `hf auth login` does; "" logs out."""
        (self.home / "token").unlink(missing_ok=True)
        if token:
            (self.home / "token").write_text(token)

    def unfinished(self) -> list[Path]:
        """Cached files that differ from the hub's: a whole file is named by its own hash."""
        blobs = [file for file in (self.home / "hub").glob("models--*/blobs/*") if file.is_file()]
        names = {file: {tag(file.read_bytes(), is_large) for is_large in (False, True)} for file in blobs}
        return [file for file in blobs if file.name not in names[file]]
