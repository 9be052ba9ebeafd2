"""Distils a drafter from a verifier, out of nothing but the verifier itself and a list of short prompts.

The verifier writes texts; the student learns the verifier's whole next-token distribution at every position the
verifier wrote; both are then measured as a pair on prompts held out from all of that. Everything lies in one
directory and every file is written whole or not at all, so a job that was broken off goes on where it was. Knows
pairs, texts and students; knows no page.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specviz.engine.engine import Engine
from specviz.errors import RequestError, StoppedError
from specviz.files import write_whole
from specviz.models.pairs import PAIRS, ModelPair, load_verifier, pair_from_models, release_memory
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress
from specviz.runtime.cuda.workspace import workspace
from specviz.runtime.machine import describe_machine
from specviz.runtime.model_runner import SlotModel
from specviz.schema.settings import Request
from specviz.tools.distill.student import Shape, beliefs, divergence, make_student
from specviz.tools.distill.texts import Texts, prompts, write_texts

_CHECKPOINT_SECONDS = 120.0
_WARM_UP_STEPS = 50
_BUCKET = 512
"""Sequences that are sorted by length together: batches of like lengths waste little on padding."""


@dataclass(frozen=True)
class Plan:
    """What to distil and how.

    Attributes:
        verifier: key of the pair whose verifier is the teacher.
        tokens: to be written by the verifier.
        answer_tokens: at most so many an answer.
        rows: answers written at once.
        passes: times each token is learned from.
        batch_tokens: learned from in one step, padding included.
        learning_rate: at its height.
        remember_gigabytes: memory for what the verifier thinks of the texts, so that it need not read them again in
            each pass; 0 reads them again.
    """

    verifier: str
    shape: Shape
    tokens: int = 1_000_000
    answer_tokens: int = 224
    rows: int = 128
    passes: int = 8
    batch_tokens: int = 2048
    learning_rate: float = 1e-3
    seed: int = 0
    remember_gigabytes: float = 4.0

    def open(self, directory: Path) -> None:
        """Make `directory`, or go on in it.

        Raises:
            RequestError: it holds a distillation with other settings.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path, mine = directory / "plan.json", json.loads(json.dumps(asdict(self)))
        if path.exists() and json.loads(path.read_text(encoding="utf-8")) != mine:
            raise RequestError(
                f"{directory} holds a distillation with other settings: give the same ones to go on, or another directory."
            )
        write_whole(path, json.dumps(mine, indent=2) + "\n")


def distil(
    plan: Plan,
    directory: Path,
    *,
    device: str = "auto",
    progress: Progress = lambda fraction, text: None,
    stop: threading.Event | None = None,
) -> dict[str, Any]:
    """Run a plan in `directory`, or go on with it; returns the report, which lies beside the student's weights.

    Raises:
        RequestError: the directory holds another plan. StoppedError: `stop` was set. PairError, EngineError: as loading and
        generating do.
    """
    plan.open(directory)
    stop = stop or threading.Event()
    teacher: Any
    teacher, tokenizer = load_verifier(plan.verifier, device=device, dtype="float32", prepack=False)
    fast = _fast_dtype(teacher.device)

    def pair() -> ModelPair:
        """What users will run: the student, and the verifier as they load it."""
        verifier, _ = load_verifier(plan.verifier, device=device)
        return _pair(student, verifier, tokenizer, vocabulary)

    # The student begins with the verifier's weights, so before those are rounded; its vocabulary needs the texts.
    texts = _texts(plan, directory, copy.deepcopy(teacher).to(fast), tokenizer, progress, stop)
    vocabulary = _vocabulary(plan, directory, teacher, tokenizer, texts)
    real = min(len(tokenizer), teacher.get_output_embeddings().weight.shape[0])
    kept = torch.arange(real) if vocabulary is None else vocabulary.kept
    student = make_student(teacher, plan.shape, kept)
    progress(0.4, "Measuring the student before it learns")
    start = _cached(directory / "start.json", lambda: _acceptance(pair(), stop, START))
    release_memory()  # what the verifier needed to write is in cycles, and learning needs the room
    figures = _train(
        plan, directory, student, _Lessons(plan, texts, teacher.to(fast), kept, vocabulary), progress, stop
    )
    progress(0.9, "Measuring on prompts held out")
    measured = pair()
    report = {
        "verifier": PAIRS[plan.verifier].verifier_name if plan.verifier in PAIRS else plan.verifier,
        "shape": str(plan.shape),
        "parameters": sum(p.numel() for p in student.parameters()),
        "tokens": texts.written,
        "passes": plan.passes,
        "device": describe_machine(str(teacher.device)),
        "start": start,
        "held_out": _acceptance(measured, stop, SETTINGS),
        "held_out_prompts": len(prompts("held_out")),
        "cost": drafter_cost(measured),
        **figures,
        "samples": samples(measured),
    }
    _save(directory, student, vocabulary, report)
    progress(1.0, "The drafter is ready")
    return report


# ---- texts and vocabulary ----------------------------------------------------------------------------------


def _texts(
    plan: Plan, directory: Path, teacher: Any, tokenizer: Any, progress: Progress, stop: threading.Event
) -> Texts:
    """All that the verifier wrote for this plan; what is missing is written now."""
    pair = pair_from_models(teacher, teacher, tokenizer)
    folder = directory / "texts"
    folder.mkdir(exist_ok=True)
    gathered, begun, fresh = Texts([], []), time.perf_counter(), 0
    for index in itertools.count():
        if gathered.written >= plan.tokens:
            break
        path = folder / f"texts-{index:05d}.safetensors"
        if not path.exists():
            seed = plan.seed * 1_000_003 + index
            made = write_texts(
                pair, plan.rows, seed, rows=plan.rows, answer_tokens=plan.answer_tokens, stop=stop
            )
            _heed(stop)
            made.save(path)
            fresh += made.written
        gathered = gathered + Texts.load(path)
        rate = fresh / (time.perf_counter() - begun)
        left = max(0, plan.tokens - gathered.written)
        progress(
            0.4 * min(1.0, gathered.written / plan.tokens),
            f"The verifier writes: {gathered.written:,} of {plan.tokens:,} tokens{_pace(left, rate, 'tokens')}",
        )
    return gathered


def _vocabulary(
    plan: Plan, directory: Path, verifier: Any, tokenizer: Any, texts: Texts
) -> SmallVocabulary | None:
    """The tokens the student will know; None for all."""
    if not plan.shape.vocabulary:
        return None
    if found := SmallVocabulary.load(directory):
        return found
    embedding = verifier.get_input_embeddings().weight.detach().cpu()
    counts = torch.bincount(torch.tensor([t for s in texts.sequences for t in s]), minlength=len(embedding))
    always = [t for t in tokenizer.all_special_ids if t < len(embedding)]
    made = SmallVocabulary.of(counts, plan.shape.vocabulary, always, embedding)
    made.save(directory)
    return made


# ---- training ----------------------------------------------------------------------------------------------


class _Lessons:
    """Batches of sequences, and what the verifier thinks at the places it wrote."""

    def __init__(
        self, plan: Plan, texts: Texts, teacher: Any, kept: Tensor, vocabulary: SmallVocabulary | None
    ) -> None:
        self.device, self.dtype = teacher.device, teacher.dtype
        self._plan, self._teacher, self._kept = plan, teacher, kept.to(teacher.device)
        self._reads = None if vocabulary is None else vocabulary.reads.to(teacher.device)
        self._sequences = texts.sequences
        self._starts = texts.starts
        self._remembered: dict[int, Tensor] = {}
        self._room = plan.remember_gigabytes * 1e9

    def order(self, epoch: int) -> list[list[int]]:
        """Batches of one pass, as indices of sequences: like lengths together, in random order."""
        chance = random.Random(f"{self._plan.seed}/{epoch}")
        everything = list(range(len(self._sequences)))
        chance.shuffle(everything)
        batches = []
        for first in range(0, len(everything), _BUCKET):
            batch: list[int] = []
            for index in sorted(everything[first : first + _BUCKET], key=lambda i: len(self._sequences[i])):
                if batch and (len(batch) + 1) * len(self._sequences[index]) > self._plan.batch_tokens:
                    batches.append(batch)
                    batch = []
                batch.append(index)
            batches.append(batch)
        chance.shuffle(batches)
        return batches

    def batch(self, indices: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """The student's input ids [B, T], the wanted places bool [B, T], and the verifier's log p [n, N] there."""
        chosen = [self._sequences[i] for i in indices]
        longest = max(map(len, chosen))
        device = self.device
        tokens = torch.tensor([s + [0] * (longest - len(s)) for s in chosen], device=device)
        places = torch.arange(longest, device=device)
        starts = torch.tensor([self._starts[i] for i in indices], device=device)[:, None]
        ends = torch.tensor([len(s) for s in chosen], device=device)[:, None]
        wanted = (places >= starts - 1) & (places < ends - 1)  # a place speaks of the token after it
        with torch.no_grad():
            log_p = beliefs(self._teacher, self._hidden(indices, tokens, wanted), self._kept)
        return tokens if self._reads is None else self._reads[tokens], wanted, log_p

    def _hidden(self, indices: list[int], tokens: Tensor, wanted: Tensor) -> Tensor:
        if all(i in self._remembered for i in indices):
            return torch.cat([self._remembered[i] for i in indices]).to(tokens.device)
        hidden = self._teacher.base_model(input_ids=tokens).last_hidden_state[wanted]
        for index, part in zip(indices, hidden.split(wanted.sum(1).tolist()), strict=True):
            size = part.numel() * part.element_size()
            if index not in self._remembered and size <= self._room:
                self._remembered[index] = part.cpu()
                self._room -= size
        return hidden


def _train(
    plan: Plan,
    directory: Path,
    student: Any,
    lessons: _Lessons,
    progress: Progress,
    stop: threading.Event,
) -> dict[str, Any]:
    """Teach `student` in place; checkpoints go to `directory`. Returns figures for the report."""
    device = lessons.device
    student.to(device).train()
    matrices = [p for p in student.parameters() if p.dim() > 1]
    rest = [p for p in student.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
        lr=plan.learning_rate,
        betas=(0.9, 0.95),
    )
    steps = [batch for epoch in range(plan.passes) for batch in lessons.order(epoch)]
    path = directory / "checkpoint.pt"
    first, curve, spent = 0, [], 0.0
    if path.exists():
        # To the CPU: both copy what they load, and the optimizer's step counts would have to be read back each time.
        kept = torch.load(path, map_location="cpu", weights_only=True)
        student.load_state_dict(kept["student"])
        optimizer.load_state_dict(kept["optimizer"])
        first, curve, spent = kept["step"], kept["curve"], kept["seconds"]

    def save(step: int) -> None:
        state = {"student": student.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        state |= {"curve": curve, "seconds": spent + time.perf_counter() - begun}
        torch.save(state, path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path)

    mixed = torch.autocast(device.type, torch.bfloat16) if lessons.dtype == torch.bfloat16 else nullcontext()
    begun = saved = time.perf_counter()
    recent: list[float] = []
    for step in range(first, len(steps)):
        done = step / len(steps)
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate * min(1.0, (step + 1) / _WARM_UP_STEPS) * (1 - 0.95 * done)
        tokens, wanted, log_p = lessons.batch(steps[step])
        with mixed:
            log_q = beliefs(student, student.base_model(input_ids=tokens).last_hidden_state[wanted])
        # KL while q is far from p, then ever more what acceptance itself depends on.
        loss, variation = divergence(log_q, log_p, sharpness=min(0.9, 1.2 * done))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent = [*recent[-49:], 1 - float(variation)]
        now = time.perf_counter()
        rate = (step + 1 - first) / (now - begun)
        progress(
            0.4 + 0.5 * done,
            f"The student learns: step {step + 1:,} of {len(steps):,}, agreement {statistics.fmean(recent):.3f}"
            + _pace(len(steps) - step - 1, rate, "steps"),
        )
        if step % 50 == 0:
            curve.append(round(statistics.fmean(recent), 4))
        if now - saved > _CHECKPOINT_SECONDS or stop.is_set() or step + 1 == len(steps):
            save(step + 1)
            saved = now
        _heed(stop)
    student.eval().cpu()
    hours = round((spent + time.perf_counter() - begun) / 3600, 2)
    return {"steps": len(steps), "training_hours": hours, "agreement_every_50_steps": curve}


# ---- measuring ---------------------------------------------------------------------------------------------

SETTINGS = {
    "lossless, T = 1": {"method": "speed", "lenience": 0.0, "temperature": 1.0},
    "lossless, T = 0": {"method": "speed", "lenience": 0.0, "temperature": 0.0},
    "cascade_tokenV3, lenience 0.5, T = 1": {
        "method": "cascade_tokenV3",
        "lenience": 0.5,
        "temperature": 1.0,
    },
}
"""What a drafter is judged by."""
START = {"lossless, T = 1": SETTINGS["lossless, T = 1"]}


def _pair(student: Any, verifier: Any, tokenizer: Any, vocabulary: SmallVocabulary | None) -> ModelPair:
    """The pair of a copy of the student and its verifier."""
    drafter = copy.deepcopy(student).to(verifier.device, verifier.dtype)
    if vocabulary is not None:
        vocabulary.widen(drafter)
    return pair_from_models(drafter, verifier, tokenizer)


def _acceptance(
    pair: ModelPair, stop: threading.Event, settings: dict[str, dict[str, Any]]
) -> dict[str, float]:
    """Accepted / examined proposals over all held-out prompts, for each setting. (Which are examined is the same
    for every draft length; a short one wastes little on a student that knows nothing yet.)"""
    result = {}
    for name, options in settings.items():
        requests = [
            Request(prompt=prompt, seed=seed, max_new_tokens=96, draft_length=2, **options)
            for seed, prompt in enumerate(prompts("held_out"))
        ]
        runs = Engine(pair).generate(requests, stop=stop)
        _heed(stop)
        accepted, examined = (
            sum(getattr(r, what) for run in runs for r in run.rounds) for what in ("accepted", "examined")
        )
        result[name] = round(accepted / examined, 4)
    return result


@torch.inference_mode()
def drafter_cost(pair: ModelPair, repetitions: int = 120, position: int = 128) -> float:
    """Seconds of one drafter forward over one verifier forward: one token each, medians of interleaved runs."""
    models = [
        SlotModel(model, pair.vocabulary_size, workspace(model)) for model in (pair.drafter, pair.verifier)
    ]
    for model in models:
        model.admit([model], position + 1)
    place = torch.tensor([[position]], device=pair.device)
    seconds: list[list[float]] = [[], []]
    for _ in range(repetitions):
        for model, spent in zip(models, seconds, strict=True):
            begun = time.perf_counter()
            model.forward(place, place, visible=position + 1).sum().item()
            spent.append(time.perf_counter() - begun)
    return round(statistics.median(seconds[0][20:]) / statistics.median(seconds[1][20:]), 4)


def samples(pair: ModelPair, count: int = 3, tokens: int = 80) -> list[dict[str, str]]:
    """Texts of verifier_only and of a lenient cascade from the same seeds, side by side."""
    held_out = prompts("held_out")
    chosen = [held_out[i * len(held_out) // count] for i in range(count)]
    options: list[dict[str, Any]] = [
        {"method": "verifier_only", "temperature": 1.0},
        SETTINGS["cascade_tokenV3, lenience 0.5, T = 1"],
    ]
    runs = Engine(pair).generate(
        [
            Request(prompt=p, seed=seed, max_new_tokens=tokens, **o)
            for seed, p in enumerate(chosen)
            for o in options
        ]
    )
    texts = iter(run.text for run in runs)
    return [{"prompt": p, "verifier_only": next(texts), "cascade_tokenV3": next(texts)} for p in chosen]


# ---- files -------------------------------------------------------------------------------------------------


def _save(directory: Path, student: Any, vocabulary: SmallVocabulary | None, report: dict[str, Any]) -> None:
    """Write the student, its card and its report to `directory`/student, whole or not at all."""
    from specviz.tools.distill.card import model_card

    partial, final = directory / "student.part", directory / "student"
    shutil.rmtree(partial, ignore_errors=True)
    small = copy.deepcopy(student).half()
    small.save_pretrained(partial, max_shard_size="9MB")
    if vocabulary is not None:
        vocabulary.save(partial)
    write_whole(partial / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    write_whole(partial / "README.md", model_card(report))
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


def _cached(path: Path, make: Callable[[], Any]) -> Any:
    if not path.exists():
        write_whole(path, json.dumps(make()))
    return json.loads(path.read_text(encoding="utf-8"))


# ---- small things ------------------------------------------------------------------------------------------


def _heed(stop: threading.Event) -> None:
    if stop.is_set():
        raise StoppedError("Stopped; start it again with the same settings to go on.")


def _pace(left: float, rate: float, unit: str) -> str:
    """Rate and time left, once there is a rate."""
    if rate <= 0:
        return ""
    minutes, seconds = divmod(round(left / rate), 60)
    return f", {rate:,.1f} {unit}/s, {minutes}:{seconds:02d} left"


def _fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies faster in it, by a short trial; float32 elsewhere."""
    if device.type == "cuda":
        return torch.bfloat16

    def seconds(dtype: torch.dtype) -> float:
        a, b = torch.ones(512, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
        times = []
        for _ in range(7):
            begun = time.perf_counter()
            a @ b
            times.append(time.perf_counter() - begun)
        return statistics.median(times)

    return torch.bfloat16 if seconds(torch.bfloat16) < 0.7 * seconds(torch.float32) else torch.float32
