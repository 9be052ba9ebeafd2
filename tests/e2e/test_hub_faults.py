"""A hub that fails: one sentence each time, the server alive, the next try works, and no half file is believed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.support.stand_in_hub import Answer, BreakOff, Slow, StandInHub
from tests.support.stand_in_hub.every_pair import PROMPT
from tests.support.stand_in_hub.served import SECONDS, served
from tests.support.stand_in_hub.server import GOOD_TOKEN, OTHER_TOKEN

SETTINGS = {"method": "speed", "temperature": 0.0, "max_new_tokens": 4}
ROOM = 20_000
"""Bytes that a full disk has left: enough for a config, too few for weights."""


class Visitor:
    """Who uses a server on the stand-in hub; each pair that is asked for unloads the one before."""

    def __init__(self, hub: StandInHub, home: Path, address: str) -> None:
        self.hub, self.home, self.address = hub, home, address
        self._client = Client(address, verbose=False, httpx_kwargs={"timeout": SECONDS})

    def write(self, pair: str) -> str:
        """A text by the pair."""
        return str(self._client.predict(PROMPT, pair=pair, api_name="/generate", **SETTINGS)["text"])

    def refusal(self, pair: str) -> str:
        """The one sentence that a pair is refused with; the server answers afterwards."""
        with pytest.raises(AppError) as refused:
            self.write(pair)
        sentence = str(refused.value)
        assert sentence.endswith(".")
        assert not {"\n", "Traceback", "http", str(self.home)} & set(sentence.split())
        assert httpx.get(f"{self.address}/health", timeout=5).status_code in (200, 404)
        assert not self.unfinished()
        return sentence

    def forget(self) -> None:
        """Empty the cache and unload what is in memory."""
        self.write("embedded")
        shutil.rmtree(self.home / "hub", ignore_errors=True)

    def log_in(self, token: str) -> None:
        """As `hf auth login` does; "" logs out."""
        (self.home / "token").unlink(missing_ok=True)
        if token:
            (self.home / "token").write_text(token)

    def unfinished(self) -> list[Path]:
        """Files of the cache that are other than those on the hub: each has its own hash for a name."""
        blobs = [it for it in (self.home / "hub").glob("models--*/blobs/*") if it.is_file()]
        return [it for it in blobs if it.name not in _hashes(it)]


def _hashes(file: Path) -> set[str]:
    content = file.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return {hashlib.sha256(content).hexdigest(), git}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    home = tmp_path_factory.mktemp("home")
    more = {"SPECVIZ_PAIRS": "1", "SPECVIZ_PAIRS_OFFERED": "all", "STAND_IN_DISK": str(home / "room")}
    with StandInHub(tmp_path_factory.mktemp("hub")) as hub, served(hub, home, **more) as address:
        yield Visitor(hub, home, address)


@pytest.fixture(autouse=True)
def nothing_cached(visitor: Visitor) -> None:
    visitor.forget()


FAULTS: dict[str, tuple[Callable[[StandInHub], AbstractContextManager[None]], str]] = {
    "404": (lambda hub: hub.plays(Answer(404), "*/opt-350m", "config.json"), "answered with an error"),
    "429": (lambda hub: hub.plays(Answer(429)), "takes no more requests from here for now"),
    "503": (lambda hub: hub.plays(Answer(503)), "is out of order"),
    "503 for one file": (
        lambda hub: hub.plays(Answer(503), files="generation_config.json"),
        "is out of order",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_sentence_and_the_next_try_works(visitor: Visitor, name: str) -> None:
    """Also where only the file that says which ids end a text is missing: without it the text would be another."""
    play, sentence = FAULTS[name]
    with play(visitor.hub):
        assert sentence in visitor.refusal("opt")
    assert visitor.write("opt")
    assert not visitor.unfinished()


def test_a_repository_that_is_missing(visitor: Visitor) -> None:
    with visitor.hub.plays(Answer(404), "facebook/*"):
        assert "opt-125m" in visitor.refusal("opt")
    assert visitor.write("opt")


@pytest.mark.parametrize(
    ("pair", "file"),
    [("opt", "pytorch_model.bin"), ("qwen2.5", "model-00002-of-00004.safetensors")],
    ids=["pickled", "shard"],
)
def test_a_download_that_stays_broken_off_leaves_no_half_file(visitor: Visitor, pair: str, file: str) -> None:
    """It breaks off in the middle of a file, and whenever the rest is asked for; files that are whole may stay."""
    with visitor.hub.plays(BreakOff(0.5), files=file, times=1), visitor.hub.plays(BreakOff(0.0), files=file):
        assert "broke off" in visitor.refusal(pair)
    assert visitor.write(pair)
    assert not visitor.unfinished()


def test_a_download_that_breaks_off_is_resumed(visitor: Visitor) -> None:
    """Once in the middle of a file: the rest is asked for, and what is put together is the hub's file."""
    with visitor.hub.plays(BreakOff(0.5), files="pytorch_model.bin", times=1):
        assert visitor.write("opt")
    assert not visitor.unfinished()


def test_a_slow_download_tells_how_far_it_is(visitor: Visitor) -> None:
    """A file after the other: what is told moves while nothing is written yet."""
    with visitor.hub.plays(Slow(1_000_000), files="*.bin"):
        assert visitor.write("opt")
    assert not visitor.unfinished()


@pytest.mark.parametrize("token", ["", OTHER_TOKEN], ids=["401", "403"])
def test_a_gated_pair_needs_the_licence(visitor: Visitor, token: str) -> None:
    """Without a token and with one that has no access; once logged in it loads, without a new start."""
    visitor.log_in(token)
    assert "is gated: accept its licence" in visitor.refusal("gemma2")
    assert not list((visitor.home / "hub").glob("models--google*/blobs/*"))  # nothing was downloaded
    visitor.log_in(GOOD_TOKEN)
    visitor.write("gemma2")
    visitor.log_in("")


def test_a_full_disk(visitor: Visitor) -> None:
    """It fills in the middle of a file: nothing of it stays, and once there is room the pair loads."""
    (visitor.home / "room").write_text(str(ROOM))
    assert "The disk is full" in visitor.refusal("opt")
    (visitor.home / "room").unlink()
    assert visitor.write("opt")
    assert not visitor.unfinished()
