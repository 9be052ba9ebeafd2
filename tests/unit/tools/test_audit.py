"""The command `audit`: it passes engines that follow the enumerated law, and accuses one that does not."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import uvicorn
from starlette.applications import Starlette

from specviz.analysis.audit import examine
from specviz.app.openai_routes import openai_routes
from specviz.cli import main as shell
from specviz.errors import PairError
from specviz.serving.service import Service
from specviz.tools.audit.models import PROMPT, enumerate_law, prepare_pair
from tests.support.serving import holding

_ENGINES = """
import random

def wrong(ids, count, seed): return random.Random(seed).choices(range(8), k=count)
def short(ids, count, seed): return [0]
def failing(ids, count, seed): raise ZeroDivisionError
"""


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with a module of engines."""
    monkeypatch.chdir(tmp_path)
    Path("audited_engines.py").write_text(_ENGINES, encoding="utf-8")


@pytest.fixture
def server_address(tmp_path: Path) -> Iterator[str]:
    """The address of the pair in `tmp_path`, served for OpenAI's clients."""
    service = Service()
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=openai_routes(service)), log_level="critical"))
    with holding(service, prepare_pair(tmp_path)), socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        server.should_exit = True
        thread.join()


def _audit(*arguments: str, samples: int = 300) -> int:
    return shell.main(["audit", *arguments, "--temperatures", "1", "--samples", str(samples)])


def test_the_law_is_the_product_of_the_verifiers_probabilities(tmp_path: Path) -> None:
    """Sequence by sequence, and its temperature is that of the logits."""
    pair = prepare_pair(tmp_path)
    law = enumerate_law(pair, 3, 0.7)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    for sequence in np.random.default_rng(0).integers(8, size=(20, 3)).tolist():
        logits = pair.verifier(torch.tensor([[*PROMPT, *sequence]])).logits[0].double() / 0.7
        p = torch.softmax(logits[len(PROMPT) - 1 :], dim=-1)
        expected = np.prod([p[n, token].item() for n, token in enumerate(sequence)])
        assert law[tuple(sequence)] == pytest.approx(expected, rel=1e-5)


def test_half_a_pair_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "drafter").mkdir()
    (tmp_path / "drafter" / "config.json").write_text("{}")
    with pytest.raises(PairError):
        prepare_pair(tmp_path)
    assert (tmp_path / "drafter" / "config.json").read_text() == "{}"


def test_a_right_engine_is_rarely_accused_on_the_audits_own_law(tmp_path: Path) -> None:
    """Its law has many cells of few samples. At the 1 % level, 200 audits of 2,000 samples accuse a right engine about twice."""
    law = enumerate_law(prepare_pair(tmp_path), 3, 1.0)
    rng = np.random.default_rng(3)
    counts = (rng.multinomial(2000, law.ravel()).reshape(law.shape) for _ in range(200))
    assert sum(examine(each, law).p_value < 0.01 for each in counts) <= 7


def test_known_engines_follow_their_claim(tmp_path: Path) -> None:
    """SpecViz and transformers, and flashspec and llama-cpp-python where they are installed."""
    found = tmp_path / "found.json"
    assert _audit("--json", str(found), samples=100) == 0
    audited = json.loads(found.read_text(encoding="utf-8"))["audited"]
    assert [each["engine"].split()[0] for each in audited][:2] == ["specviz", "transformers"]
    assert not any(each["departs"] for each in audited)


@pytest.mark.usefixtures("_folder")
def test_a_function_that_samples_from_another_distribution_is_accused() -> None:
    """The report says how to reproduce it."""
    assert _audit("audited_engines:wrong", "--models", "models", "--markdown", "report.md") == 1
    report = Path("report.md").read_text(encoding="utf-8")
    assert "departs from its claim" in report
    assert "audit audited_engines:wrong --samples 300" in report


def test_a_server_is_audited_through_its_completions(
    tmp_path: Path, server_address: str, capsys: pytest.CaptureFixture
) -> None:
    """One that decodes losslessly passes; one that samples from the drafter does not. What it answers else is told."""

    def ask(address: str = server_address, **body: object) -> tuple[int, str]:
        sent = json.dumps({"model": "embedded", "lenience": 0, **body})
        status = _audit(address, "--models", str(tmp_path), "--body", sent, samples=200)
        return status, "".join(capsys.readouterr())

    assert ask(method="speed")[0] == 0
    status, report = ask(method="drafter_only")
    assert (status, "departs from its claim" in report) == (1, True)
    assert "404" in ask(model="nowhere")[1]
    assert "ConnectError" in ask("http://127.0.0.1:9/v1")[1]


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("vllm",), 2, "'vllm'"),
        (("nowhere:engine", "--models", "m"), 2, "cannot be imported"),
        ((":draw", "--models", "m"), 2, "cannot be imported"),
        (("audited_engines:wrong",), 2, "--models"),
        (("audited_engines:short", "--models", "m"), 1, "3 tokens from 0 to 7"),
        (("audited_engines:failing", "--models", "m"), 1, "ZeroDivisionError"),
    ],
)
def test_bad_input_gets_a_sentence(
    arguments: tuple[str, ...], status: int, words: str, capsys: pytest.CaptureFixture
) -> None:
    assert _audit(*arguments) == status
    assert words in capsys.readouterr().err
