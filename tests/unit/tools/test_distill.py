"""Distillation end to end on a tiny verifier, and its parts."""

from __future__ import annotations

import copy
import random
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.models.checkpoint import Checkpoint
from specviz.models.loading import load_verifier
from specviz.models.pair import pair_from_models
from specviz.models.registry import PAIRS, HubSource, PairSpec
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import silent
from specviz.schema.settings import Request
from specviz.tools.distill import distillation, training
from specviz.tools.distill.distillation import distill, make_student
from specviz.tools.distill.prompts import held_out_prompts, made_prompts
from specviz.tools.distill.settings import DistillationSettings
from specviz.tools.distill.skills import training_examples
from specviz.tools.distill.texts import Text, load_texts, save_texts, written
from specviz.tools.distill.training import (
    Batches,
    Training,
    hidden_states,
    logits,
    loss_gradient,
    round_to_four_bits,
    skill_batches,
)
from tests.support.tiny import tiny_model, tiny_tokenizer

SETTINGS = DistillationSettings(
    verifier="tiny",
    layers=(0,),
    vocabulary=200,
    tokens=1_000,
    answer_tokens=32,
    rows=16,
    passes=8,
    batch_tokens=256,
    learning_rate=3e-3,
    four_bits=True,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny verifier of three layers with padded logits and a chat template."""
    directory = tmp_path_factory.mktemp("verifier")
    tokenizer = tiny_tokenizer(directory, chat=True)
    size, end = len(tokenizer), tokenizer.eos_token_id
    tiny_model(
        "llama", size + 7, 2, directory, layers=3, dtype=torch.float32, eos_token_id=end, loud_from=size
    )
    return directory


@pytest.fixture(autouse=True)
def _pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair with the tiny verifier, and few held-out prompts at one setting."""
    source = HubSource(str(folder))
    pair = PairSpec("tiny", "A tiny pair", source, source, "tiny", "tiny", 10_000, 10_000, "")
    monkeypatch.setitem(PAIRS, "tiny", pair)
    monkeypatch.setattr(distillation, "held_out_prompts", lambda: held_out_prompts()[:2])
    monkeypatch.setattr(distillation, "_TEMPERATURES", (1.0,))


@pytest.fixture
def verifier() -> tuple[Any, Any]:
    """The tiny verifier and its tokenizer."""
    return load_verifier("tiny", device="cpu", dtype="float32")


def test_a_drafter_is_trained_resumed_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted training resumes at its step; a second distillation teaches its drafter skills, beside its texts."""
    stages: list[str] = []

    def interrupt(_fraction: float, text: str) -> None:
        stages.append(text)
        if "step 20 of" in text:
            raise KeyboardInterrupt

    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(training, "_CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        distill(SETTINGS, first, progress=interrupt)
    texts = {file: file.read_bytes() for file in (first / "texts").iterdir()}
    stages.clear()
    report = distill(SETTINGS, first, progress=lambda _, text: stages.append(text))
    assert "step 20 of" in next(text for text in stages if "step" in text)
    assert report["tokens"] >= SETTINGS.tokens
    agreements = report["agreement_every_50_steps"]
    assert agreements[-1] > agreements[0]
    assert not list(tmp_path.rglob("*.part"))
    drafter = Checkpoint.read(first / "student").module(torch.float32)
    assert (drafter.config.vocab_size, drafter.config.num_hidden_layers) == (200, 1)
    with pytest.raises(RequestError, match="other settings"):
        distill(replace(SETTINGS, seed=1), first)
    before = {path: path.read_bytes() for path in (first / "student").iterdir()} | texts
    more = replace(SETTINGS, start=str(first / "student"), texts=(str(first / "texts"),), skills=20, passes=1)
    continued = distill(replace(more, tokens=report["tokens"] + 200), second)
    added = {text for path in (second / "texts").iterdir() for text in load_texts(path, 1_000)}
    assert written(added) >= continued["tokens"] - report["tokens"] >= 200
    assert continued["agreement_every_50_steps"][0] > agreements[0]
    assert SmallVocabulary.load(second / "student") is not None
    assert {path: path.read_bytes() for path in before} == before


def test_a_drafter_is_taught_answers_and_elsewhere_by_its_former_self(
    verifier: tuple[Any, Any], tmp_path: Path
) -> None:
    """Taught tokens get likely; the distributions at all other positions are those from before the training."""
    teacher, tokenizer = verifier
    every = torch.arange(len(tokenizer))
    student = make_student(teacher, (0,), every)
    former = copy.deepcopy(student)
    texts = [Text((*range(1, 30),), 5), Text((*range(3, 50),), 5)]
    settings = replace(SETTINGS, start="given", skills=80, passes=4)
    questions = list(islice(training_examples(0), 80))
    batches = skill_batches(settings, texts, questions, former, SmallVocabulary(every, every), tokenizer)
    before, kept = _likelihood(student, batches)
    assert kept == pytest.approx(1.0, abs=1e-3)  # the sum of min(q, p) at positions that are not taught
    trained, _ = Training(settings, tmp_path, student, batches).run(silent)
    assert _likelihood(trained, batches)[0] > 10 * before


def _likelihood(student: Any, batches: Batches) -> tuple[float, float]:
    """Mean agreement, Σ min(q, p), at the taught positions of all batches, and at the others."""
    taught, others = [], []
    for number in range(len(batches)):
        ids, shared, mask, p, certain = batches.take(number)
        with torch.no_grad():
            q = logits(student, hidden_states(student, ids, shared)[mask]).softmax(-1)
        agreement = torch.minimum(q, p).sum(-1)
        taught.append(agreement[certain])
        others.append(agreement[~certain])
    return float(torch.cat(taught).mean()), float(torch.cat(others).mean())


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"start": "nowhere"}, "holds no drafter"),
        ({"layers": (0, 3)}, "no layer 3"),
        ({"skills": 5}, "as start"),
        ({"texts": ("damaged",)}, "holds no texts"),
        ({"texts": ("foreign",)}, "holds no texts"),
    ],
)
def test_unusable_inputs_are_refused_before_anything_is_written(
    named: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("damaged", "foreign"):
        Path(name).mkdir()
    Path("damaged/texts-00000.safetensors").write_bytes(b"no texts")
    save_texts([Text((5, 10_000), 1)], Path("foreign/texts-00000.safetensors"))
    with pytest.raises(RequestError, match=sentence):
        distill(replace(SETTINGS, **named), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_shared_opening_is_read_once(verifier: tuple[Any, Any]) -> None:
    """Hidden states after it are those of whole passes."""
    ids = torch.randint(0, 200, (5, 12))
    ids[:, :4] = ids[0, :4]
    whole = verifier[0].base_model(input_ids=ids).last_hidden_state
    torch.testing.assert_close(hidden_states(verifier[0], ids, 4), whole[:, 4:])


def test_made_prompts_are_distinct_and_away_from_held_out_ones() -> None:
    """And every slot is filled."""
    made = list(islice(made_prompts(random.Random(3)), 300))
    assert len(set(made)) == len(made)
    assert not any(re.search(r"\{(\w+|\d+\.\.\d+)\}", prompt) for prompt in made)
    assert not set(made) & set(held_out_prompts())
    words = [set(re.findall(r"\w+", prompt.lower())) for prompt in held_out_prompts()]
    for prompt in made:
        own = set(re.findall(r"\w+", prompt.lower()))
        assert not any(len(own & each) > 0.8 * max(len(own), len(each)) for each in words)


def test_a_small_vocabulary_leaves_lossless_text_alone(verifier: Any) -> None:
    """Law 5: the drafter reads all tokens and proposes only those that it knows; greedy text is the verifier's."""
    model, tokenizer = verifier
    embedding = model.get_input_embeddings().weight
    special = list(tokenizer.all_special_ids)
    vocabulary = SmallVocabulary.of(torch.arange(len(embedding)), 100, special, embedding)
    assert set(special) <= set(vocabulary.kept.tolist())
    drafter = make_student(model, (0, 1), vocabulary.kept)
    vocabulary.widen(drafter)
    common: dict[str, Any] = {"prompt": "The quick café", "temperature": 0.0, "max_new_tokens": 60}
    requests = [Request(method=method, lenience=0, **common) for method in ("speed", "verifier_only")]
    [fast, plain] = Engine(pair_from_models(drafter, model, tokenizer)).generate(requests)
    assert fast.token_ids == plain.token_ids
    proposed = {p.id for r in fast.rounds for p in r.proposals}
    assert proposed <= set(vocabulary.kept.tolist())
    assert not set(plain.token_ids) <= proposed


@pytest.mark.parametrize("sharpness", [0.0, 0.4])
def test_the_gradient_is_that_of_kl_and_total_variation(sharpness: float) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(5, 11, generator=generator, dtype=torch.float64).requires_grad_()
    p = torch.randn(5, 11, generator=generator, dtype=torch.float64).softmax(-1)
    log_q = scores.log_softmax(-1)
    variation = (p - log_q.exp()).abs().sum(-1).mean() / 2
    loss = (1 - sharpness) * (p * (p.log() - log_q)).sum(-1).mean() + sharpness * variation
    loss.backward()
    gradient, acceptance = loss_gradient(scores, p, sharpness)
    torch.testing.assert_close(gradient, scores.grad)
    torch.testing.assert_close(acceptance, 1 - variation.detach())


def test_four_bits_are_those_of_gguf() -> None:
    """But for a few numbers at the edge between two levels."""
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(5))
    theirs = dequantize(quantize(weight.numpy(), GGMLQuantizationType.Q4_1), GGMLQuantizationType.Q4_1)
    assert (round_to_four_bits(weight) != torch.from_numpy(theirs)).float().mean() < 0.01
