"""Distillation end to end on a tiny verifier, and the small vocabulary a student may have."""

from __future__ import annotations

import json
import random
import re
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from specviz.engine.engine import Engine
from specviz.errors import RequestError, StoppedError
from specviz.models.checkpoint import Checkpoint
from specviz.models.loading import load_verifier
from specviz.models.pair import pair_from_models
from specviz.models.registry import PAIRS, HubSource, PairSpec
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.schema.settings import Request
from specviz.tools.distill import distillation, evaluation, prompts, texts
from specviz.tools.distill.curve import CurvePoint, expectations
from specviz.tools.distill.distillation import Distillation
from specviz.tools.distill.prompts import held_out_prompts, made_prompts
from specviz.tools.distill.rounding import round_to_four_bits
from specviz.tools.distill.settings import DistillationSettings, Shape
from specviz.tools.distill.student import loss_gradient, make_student
from specviz.tools.distill.training import Training, TrainingBatches
from tests.support.tiny import tiny_model, tiny_tokenizer

SETTINGS = DistillationSettings(
    verifier="tiny",
    shape=Shape(depth=1, width=64, vocabulary=200),
    tokens=12_000,
    answer_tokens=48,
    rows=64,
    passes=6,
    batch_tokens=1024,
    learning_rate=3e-3,
)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny verifier of three layers with padded logits and a chat template."""
    directory = tmp_path_factory.mktemp("verifier")
    tokenizer = tiny_tokenizer(directory, chat=True)
    size, end = len(tokenizer), tokenizer.eos_token_id
    tiny_model(
        "llama", size + 7, 2, directory, layers=3, dtype=torch.float32, eos_token_id=end, loud_from=size
    )
    return directory


@pytest.fixture(autouse=True)
def found(verifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair with the tiny verifier, and a few of the prompts in place of all."""
    source = HubSource(str(verifier))
    pair = PairSpec("tiny", "A tiny pair", source, source, "tiny", "tiny", 10_000, 10_000, "")
    monkeypatch.setitem(PAIRS, "tiny", pair)
    for module in (distillation, evaluation):
        monkeypatch.setattr(module, "held_out_prompts", lambda: held_out_prompts()[:4])


def test_the_student_comes_to_agree_with_its_verifier(tmp_path: Path) -> None:
    """Interrupted and resumed, it ends with a student whose acceptance rate is higher than before training."""
    stages: list[str] = []
    stop = threading.Event()

    def interrupt(_fraction: float, text: str) -> None:
        stages.append(text)
        if "step 40 of" in text:
            stop.set()

    with pytest.raises(StoppedError, match="same settings"):
        Distillation(SETTINGS, tmp_path, progress=interrupt, stop=stop).run()
    written = sorted((tmp_path / "texts").iterdir())
    times = [file.stat().st_mtime_ns for file in written]
    stages.clear()
    report = Distillation(SETTINGS, tmp_path, progress=lambda _fraction, text: stages.append(text)).run()
    assert "step 41 of" in next(text for text in stages if "step" in text), "training goes on where it was"
    assert [file.stat().st_mtime_ns for file in written] == times, "texts are not written twice"
    [start] = report["start"].values()
    assert report["held_out"]["lossless, T = 1"] > start + 0.1
    assert report["tokens"] >= SETTINGS.tokens
    assert not list(tmp_path.rglob("*.part"))

    drafter = Checkpoint.read(tmp_path / "student").module(torch.float32)
    assert drafter.config.vocab_size == 200
    assert drafter.config.num_hidden_layers == 1
    assert json.loads((tmp_path / "student" / "report.json").read_text()) == report
    card = (tmp_path / "student" / "README.md").read_text()
    assert f"{report['held_out']['lossless, T = 1']:.3f}" in card
    assert "Apache-2.0" in card
    assert "stored in Q8_0" in card
    tokens = [point["tokens"] for point in report["acceptance_by_tokens"]]
    assert len(tokens) == 6
    assert tokens == sorted(set(tokens))
    assert tokens[-1] > SETTINGS.tokens, "user turns and later passes count too"
    assert f"| {tokens[-1]:,} | {report['held_out']['lossless, T = 1']:.3f} |" in card
    assert report["expected"].keys() == report["held_out"].keys()

    with pytest.raises(RequestError, match="other settings"):
        Distillation(DistillationSettings(verifier="tiny", shape=SETTINGS.shape), tmp_path).run()


def test_it_goes_on_from_a_drafter_and_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From where the first one ended, with its texts and as many more as are asked for; neither is changed."""
    monkeypatch.setattr(evaluation, "held_out_prompts", lambda: held_out_prompts()[:1])
    first = replace(SETTINGS, tokens=2_000, rows=8, passes=2)
    Distillation(first, tmp_path / "first").run()
    drafter, given = tmp_path / "first" / "student", tmp_path / "first" / "texts"
    before = {path: path.read_bytes() for folder in (drafter, given) for path in folder.iterdir()}
    written = texts.Texts.read(given, 1_000).written
    more = replace(first, start=str(drafter), texts=(str(given),), tokens=written + 1_000, seed=1, passes=1)
    report = Distillation(more, tmp_path / "more").run()
    assert report["tokens_given"] == written
    assert report["tokens"] >= written + 1_000
    assert texts.Texts.read(tmp_path / "more" / "texts", 1_000).written == report["tokens"] - written
    assert SmallVocabulary.load(tmp_path / "more" / "student") is not None
    [start] = report["start"].values()
    ended = json.loads((drafter / "report.json").read_text())["held_out"]["lossless, T = 1"]
    assert start == pytest.approx(ended, abs=0.05), "but for what Q8_0 rounded"
    earlier, later = (
        [point.tokens for point in CurvePoint.read(made)] for made in (drafter, tmp_path / "more" / "student")
    )
    assert later[: len(earlier)] == earlier, "its curve goes on from where the first one's ended"
    assert len(later) > len(earlier)
    assert later == sorted(set(later))
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"start": "nowhere"}, "holds no drafter"),
        ({"start": "other"}, "another tokenizer"),
        ({"texts": ("nowhere",)}, "holds no texts"),
        ({"texts": ("damaged",)}, "holds no texts"),
        ({"texts": ("other",)}, "ids of another tokenizer"),
    ],
)
def test_what_it_cannot_go_on_from_is_refused_before_anything_is_written(
    named: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged").mkdir()
    Path("damaged/texts-00000.safetensors").write_bytes(b"no texts")
    tiny_model("llama", 77, 2, Path("other"), dtype=torch.float32)
    Path("other/model.safetensors").rename("weights") if "texts" in named else None
    texts.Texts([[5, 10_000]], [1]).save(Path("other/texts-00000.safetensors")) if "texts" in named else None
    with pytest.raises(RequestError, match=sentence):
        Distillation(replace(SETTINGS, **named), tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_made_prompts_differ_fill_every_slot_and_stay_away_from_those_held_out() -> None:
    """Of every kind, the same for the same seed; an apple that Anna has stays Anna's."""
    made = list(islice(made_prompts(random.Random(3)), 2_000))
    assert made == list(islice(made_prompts(random.Random(3)), 2_000))
    assert len(set(made)) == len(made)
    assert not any(re.search(r"\{(\w+|\d+\.\.\d+)\}", prompt) for prompt in made)
    assert not set(made) & set(held_out_prompts())
    assert "What is 38 plus 12?" not in made, "shares four of five words with one held out"
    readers = re.compile(r"(\w+) reads \d+ pages a day\. How many pages does (\w+) read .*")
    found = [match.groups() for prompt in made if (match := readers.fullmatch(prompt))]
    assert found
    assert all(first == second for first, second in found)


def test_a_text_is_learned_from_once() -> None:
    """What was written again, in the same file or a later one, is left out."""
    seen = set[tuple[int, ...]]()
    first = texts.Texts([[5, 6, 7], [5, 8], [5, 6, 7]], [1, 1, 1]).without(seen)
    assert first == texts.Texts([[5, 6, 7], [5, 8]], [1, 1])
    assert texts.Texts([[5, 8], [5, 9]], [1, 1]).without(seen) == texts.Texts([[5, 9]], [1])


def test_made_prompts_end_where_all_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the one that shares four of five words with a prompt held out."""
    templates = ["Is {a|b} of {2..4}", "{thing} or {thing}?"]
    few = {
        "held_out": {"one": ["Is it 3 of b?"]},
        "templates": {"one": templates},
        "words": {"thing": ["tea", "milk"]},
    }
    monkeypatch.setattr(prompts, "_FILE", tmp_path / "prompts.json")
    (tmp_path / "prompts.json").write_text(json.dumps(few))
    numbered = {f"Is {letter} of {number}" for letter in "ab" for number in (2, 3, 4)} - {"Is b of 3"}
    assert set(made_prompts(random.Random(1))) == numbered | {"Tea or milk?", "Milk or tea?"}


def test_the_curve_says_what_to_expect() -> None:
    """A line over doublings of tokens, from an eighth of them on; rates end at 1, and near points say nothing."""
    curve = [CurvePoint(1_000 * 2**n, {"a": 0.3 + 0.02 * n, "b": 0.9 + 0.03 * n}) for n in range(4)]
    curve.insert(0, CurvePoint(10, {"a": 0.9, "b": 0.0}))
    found = expectations(curve)
    assert found["a"].gain == pytest.approx(0.02)
    assert found["a"].acceptance == {"2": pytest.approx(0.38), "10": pytest.approx(0.4264, abs=1e-4)}
    assert found["b"].acceptance["10"] == 1.0
    near = [CurvePoint(n, {"a": 0.3}) for n in (10, 1_000, 1_900)]
    assert expectations(near) == expectations([]) == {}


def test_a_small_vocabulary_never_shows_in_the_text(verifier: Path, tmp_path: Path) -> None:
    """A drafter that knows fewer tokens reads all of them, proposes only its own, and leaves greedy text alone."""
    model, tokenizer = load_verifier("tiny", device="cpu", dtype="float32", prepack=False)
    embedding = model.get_input_embeddings().weight
    counts = torch.arange(len(embedding))  # the rare ones are the letters
    vocabulary = SmallVocabulary.of(counts, 100, list(tokenizer.all_special_ids), embedding)
    assert len(vocabulary.kept) == 100
    assert set(tokenizer.all_special_ids) <= set(vocabulary.kept.tolist())
    assert torch.equal(vocabulary.kept[vocabulary.reads[vocabulary.kept]], vocabulary.kept)
    vocabulary.save(tmp_path)
    loaded = SmallVocabulary.load(tmp_path)
    assert loaded is not None
    assert torch.equal(loaded.reads, vocabulary.reads)
    drafter = make_student(model, Shape(layers=(0, 1), vocabulary=100), loaded.kept)
    loaded.widen(drafter)
    engine = Engine(pair_from_models(drafter, model, tokenizer))
    common: dict[str, Any] = {"prompt": "The quick café", "temperature": 0.0, "max_new_tokens": 60}
    [fast, plain] = engine.generate(
        [Request(method=m, lenience=0, **common) for m in ("speed", "verifier_only")]
    )
    assert fast.token_ids == plain.token_ids
    proposed = {p.id for r in fast.rounds for p in r.proposals}
    assert proposed <= set(vocabulary.kept.tolist())
    assert not set(plain.token_ids) <= proposed


@pytest.mark.parametrize("text", ["", "layers:", "narrow:4", "narrow:0x64", "narrow:2x65", "wide:3"])
def test_a_shape_that_cannot_be_read_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(RequestError, match="is no shape"):
        Shape.parse(text, 0)


def test_layers_count_from_either_end_and_must_be_there(verifier: Path) -> None:
    model, tokenizer = load_verifier("tiny", device="cpu", dtype="float32", prepack=False)
    known = torch.arange(len(tokenizer))
    first, last = (
        make_student(model, Shape.parse(text, 0), known) for text in ("layers:0,2", "layers:-3,-1")
    )
    assert first.config.num_hidden_layers == last.config.num_hidden_layers == 2
    assert all(map(torch.equal, first.state_dict().values(), last.state_dict().values()))
    for text in ("layers:0,3", "layers:-4"):
        with pytest.raises(RequestError, match="has no layer"):
            make_student(model, Shape.parse(text, 0), known)


@pytest.mark.parametrize("sharpness", [0.0, 0.4, 1.0])
def test_the_gradient_is_that_of_kl_and_total_variation(sharpness: float) -> None:
    """In closed form as by autograd, means over positions, with the acceptance rate of lossless decoding."""
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


def test_user_turns_are_learned_from(verifier: Path) -> None:
    """Everything after the opening that all sequences share, and nothing of the padding."""
    model, tokenizer = load_verifier("tiny", device="cpu", dtype="float32", prepack=False)
    made = texts.Texts([[5, 6, 7, 8, 9], [5, 6, 9, 4]], [4, 3])
    batches = TrainingBatches(SETTINGS, made, model, torch.arange(len(tokenizer)), None)
    ids, mask, p = batches.take([0, 1])
    assert ids.tolist() == [[5, 6, 7, 8, 9], [5, 6, 9, 4, 0]]
    assert mask.tolist() == [[False, False, True, True, False], [False, False, True, False, False]]
    assert p.shape == (3, len(tokenizer))
    torch.testing.assert_close(p.sum(-1), torch.ones(3))


def test_four_bits_are_those_of_gguf() -> None:
    """To a few numbers at the edge between two levels, and at most half a step from the exact ones."""
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(5))
    made = round_to_four_bits(weight)
    theirs = dequantize(quantize(weight.numpy(), GGMLQuantizationType.Q4_1), GGMLQuantizationType.Q4_1)
    assert (made != torch.from_numpy(theirs)).float().mean() < 0.01
    blocks = weight.unflatten(-1, (-1, 32))
    step = (blocks.amax(-1) - blocks.amin(-1)) / 15
    off = (made - weight).unflatten(-1, (-1, 32)).abs().amax(-1)
    assert bool((off <= step * 0.51).all())


def test_rounded_passes_leave_the_weights_exact(verifier: Path, tmp_path: Path) -> None:
    """A pass sees rounded matrices, the optimizer exact ones; what comes out is rounded."""
    model, tokenizer = load_verifier("tiny", device="cpu", dtype="float32", prepack=False)
    settings = replace(SETTINGS, four_bits=True, passes=1)
    kept = torch.arange(len(tokenizer))
    batches = TrainingBatches(settings, texts.Texts([[5, 6, 7, 8, 9]], [2]), model, kept, None)
    student = make_student(model, Shape(layers=(0,)), kept)
    before = student.get_output_embeddings().weight.detach().clone()
    training = Training(settings, tmp_path, student, batches)
    with training._rounded():
        seen = student.get_output_embeddings().weight.detach().clone()
    torch.testing.assert_close(seen, round_to_four_bits(before), rtol=0, atol=0)
    torch.testing.assert_close(student.get_output_embeddings().weight.detach(), before, rtol=0, atol=0)
    training.run(lambda _fraction, _text: None, threading.Event())
    after = student.get_output_embeddings().weight.detach()
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, round_to_four_bits(after))
