"""Distils a drafter from a verifier, with nothing but the verifier itself and a list of short prompts.

The verifier writes texts, or has written them; the student learns its next-token distribution at every position it
wrote; both are measured as a pair on held-out prompts, on the way and at the end. Everything lies in one directory and
every file is written whole or not at all, so that an interrupted distillation resumes. Knows the stages; knows no page.
"""

from __future__ import annotations

import copy
import itertools
import json
import shutil
import statistics
import threading
import time
import timeit
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from specviz.compat.transformers import quiet_transformers
from specviz.errors import RequestError
from specviz.files import write_whole
from specviz.models.checkpoint import Checkpoint
from specviz.models.loading import load_pair, load_verifier, release_memory
from specviz.models.pair import ModelPair, pair_from_models
from specviz.models.placement import dtype_name
from specviz.models.registry import AssetSource, find_pair
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress
from specviz.tools.distill import evaluation
from specviz.tools.distill.curve import CurvePoint, expectations
from specviz.tools.distill.prompts import held_out_prompts
from specviz.tools.distill.settings import DistillationSettings, raise_if_stopped, time_left
from specviz.tools.distill.student import make_student
from specviz.tools.distill.texts import Texts, write_texts
from specviz.tools.distill.training import Training, TrainingBatches
from specviz.tools.machine import describe_machine
from specviz.tools.templates import Templates


class Distillation:
    """One distillation in `directory`, begun or resumed."""

    def __init__(
        self,
        settings: DistillationSettings,
        directory: Path,
        *,
        device: str = "auto",
        progress: Progress = lambda fraction, text: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._settings, self._directory, self._device = settings, directory, device
        self._progress, self._stop = progress, stop or threading.Event()

    def run(self) -> dict[str, Any]:
        """Do what is left to do; returns the report, which is saved beside the student's weights.

        Raises:
            RequestError: the directory holds a distillation with other settings, or what was named to begin with is none.
            StoppedError: `stop` was set.
            PairError, EngineError: as loading and generating do.
        """
        settings, directory = self._settings, self._directory
        settings.check(directory)
        teacher: Any
        teacher, tokenizer = load_verifier(
            settings.verifier, device=self._device, dtype="float32", prepack=False
        )
        fast = _fast_dtype(teacher.device)
        known = min(len(tokenizer), teacher.get_output_embeddings().weight.shape[0])
        # What was named to begin with is read before anything is written or takes hours.
        begun = read_drafter(Path(settings.start), teacher, known) if settings.start else None
        given = sum((Texts.read(Path(folder), known) for folder in settings.texts), Texts([], []))
        settings.open(directory)
        texts = given
        if given.written < settings.tokens:
            pair = self._writing_pair(teacher, tokenizer, fast)
            texts = given + self._write_texts(pair, settings.tokens - given.written)
            del pair
        vocabulary = begun[1] if begun else self._choose_vocabulary(teacher, tokenizer, texts)
        kept = torch.arange(known) if vocabulary is None else vocabulary.kept
        # A new student begins with the verifier's weights: made before those are rounded.
        student = begun[0] if begun else make_student(teacher, settings.shape, kept)

        def measure(asked: dict[str, dict[str, Any]] = evaluation.EVALUATIONS) -> dict[str, float]:
            return evaluation.acceptance_rates(self._pair(student, vocabulary), asked, self._stop)

        self._progress(0.4, "Measuring the student before it learns")
        start = _cached(directory / "start.json", lambda: measure(evaluation.BEFORE_TRAINING))
        release_memory()  # the writing verifier's memory is held by reference cycles, and training needs it
        batches = TrainingBatches(settings, texts, teacher.to(fast), kept, vocabulary)
        curve = CurvePoint.read(Path(settings.start)) if settings.start else []
        training = Training(settings, directory, student, batches, measure, curve)
        figures = training.run(self._progress, self._stop)
        self._progress(0.9, "Measuring on prompts held out")
        pair = self._pair(student, vocabulary)
        report = {
            "verifier": find_pair(settings.verifier).verifier_name,
            "shape": f"as {Path(settings.start).name}" if settings.start else str(settings.shape),
            "format": settings.format,
            "parameters": sum(p.numel() for p in student.parameters()),
            "tokens": texts.written,
            "tokens_given": given.written,
            "passes": settings.passes,
            "device": describe_machine(str(teacher.device)),
            "start": start,
            "held_out": training.curve[-1].acceptance,
            "expected": {name: asdict(each) for name, each in expectations(training.curve).items()},
            "held_out_prompts": len(held_out_prompts()),
            "cost": evaluation.drafter_cost(pair),
            **figures,
            "samples": evaluation.samples(pair),
        }
        _save(directory, student, vocabulary, report)
        shutil.rmtree(directory / _MEASURED)
        self._progress(1.0, "The drafter is ready")
        return report

    def _pair(self, student: Any, vocabulary: SmallVocabulary | None) -> ModelPair:
        """What users will run: the student as it would be stored now, and the verifier, both as they load them."""
        folder = self._directory / _MEASURED
        _store(folder, student, vocabulary, self._settings.format)
        spec = replace(find_pair(self._settings.verifier), drafter=AssetSource(str(folder.resolve())))
        return load_pair(spec, device=self._device)

    def _writing_pair(self, teacher: Any, tokenizer: Any, dtype: torch.dtype) -> ModelPair:
        """A pair whose verifier writes as fast as there is: on a CPU in fused passes, on a GPU in `dtype`."""
        if teacher.device.type == "cpu":
            return load_pair(self._settings.verifier, device=self._device)
        verifier = copy.deepcopy(teacher).to(dtype)
        return pair_from_models(verifier, verifier, tokenizer)

    def _write_texts(self, pair: ModelPair, tokens: int) -> Texts:
        """Texts of at least `tokens` by the pair's verifier; those that are missing in the directory are written now."""
        settings = self._settings
        folder = self._directory / "texts"
        folder.mkdir(exist_ok=True)
        texts, begun, fresh, seen = Texts([], []), time.perf_counter(), 0, set[tuple[int, ...]]()
        for index in itertools.count():
            if texts.written >= tokens:
                break
            path = folder / f"texts-{index:05d}.safetensors"
            if not path.exists():
                seed = settings.seed * 1_000_003 + index
                made = write_texts(
                    pair, settings.rows, seed, answer_tokens=settings.answer_tokens, stop=self._stop
                )
                raise_if_stopped(self._stop)
                made.save(path)
                fresh += made.written
            texts = texts + Texts.load(path).without(seen)
            left = max(0, tokens - texts.written)
            self._progress(
                0.4 * min(1.0, texts.written / tokens),
                f"The verifier writes: {texts.written:,} of {tokens:,} tokens"
                + time_left(left, fresh / (time.perf_counter() - begun), "tokens"),
            )
        return texts

    def _choose_vocabulary(self, verifier: Any, tokenizer: Any, texts: Texts) -> SmallVocabulary | None:
        """The tokens the student will know, by their counts in `texts`; None for all."""
        size = self._settings.shape.vocabulary
        if not size:
            return None
        if found := SmallVocabulary.load(self._directory):
            return found
        embedding = verifier.get_input_embeddings().weight.detach().cpu()
        ids = torch.tensor([t for s in texts.sequences for t in s])
        special = [t for t in tokenizer.all_special_ids if t < len(embedding)]
        made = SmallVocabulary.of(torch.bincount(ids, minlength=len(embedding)), size, special, embedding)
        made.save(self._directory)
        return made


def _store(folder: Path, student: Any, vocabulary: SmallVocabulary | None, kind: str) -> None:
    """Write the student in a quantised format to `folder`, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    Checkpoint.of(student, kind).save(folder, _MOST_BYTES)
    student.generation_config.save_pretrained(folder)
    if vocabulary is not None:
        vocabulary.save(folder)


def _save(directory: Path, student: Any, vocabulary: SmallVocabulary | None, report: dict[str, Any]) -> None:
    """Write the student, its card and its report to `directory`/student, whole or not at all."""
    partial, final = directory / "student.part", directory / "student"
    _store(partial, student, vocabulary, report["format"])
    write_whole(partial / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    write_whole(partial / "README.md", model_card(report))
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


def read_drafter(folder: Path, verifier: Any, known: int) -> tuple[Any, SmallVocabulary | None]:
    """A float32 drafter in a folder, to go on from, and its vocabulary; it must be over the verifier's `known` tokens.

    Raises:
        RequestError: there is none, or it is over other tokens.
    """
    try:
        with quiet_transformers:
            student = Checkpoint.read(folder).module(torch.float32)
        vocabulary = SmallVocabulary.load(folder)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise RequestError(
            f"{folder} holds no drafter: give a folder with its config and weights."
        ) from error
    size, sizes = student.config.vocab_size, {known}
    if vocabulary is not None:
        size, sizes = len(vocabulary.reads), {known, len(verifier.get_input_embeddings().weight)}
    if size not in sizes:
        raise RequestError(
            f"{folder} holds a drafter of another tokenizer: its verifier's has {known:,} tokens."
        )
    return student.requires_grad_(True), vocabulary


_MEASURED = "measured"
"""Folder of the student as it is measured."""
_MOST_BYTES = 9_000_000
"""Of a file of weights: what a git push to a Space takes."""


def model_card(report: dict[str, Any]) -> str:
    """The student's model card in Markdown; every figure in it comes from `report`."""
    return _TEMPLATES.render("model_card.md.j2", **report)


def _code_block(text: str) -> str:
    """Model output as an indented block, which no Markdown in it can end."""
    return "\n".join(f"    {line}" for line in text.strip().split("\n"))


def _cached(path: Path, make: Callable[[], Any]) -> Any:
    if not path.exists():
        write_whole(path, json.dumps(make()))
    return json.loads(path.read_text(encoding="utf-8"))


def _fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies faster in it, on a CPU by a short trial; float32 elsewhere."""
    if device.type == "cuda":
        return torch.bfloat16 if dtype_name("auto", device) == "bfloat16" else torch.float32

    def seconds(dtype: torch.dtype) -> float:
        a, b = torch.ones(512, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
        return statistics.median(timeit.repeat(lambda: a @ b, number=1, repeat=7))

    return torch.bfloat16 if seconds(torch.bfloat16) < 0.7 * seconds(torch.float32) else torch.float32


_TEMPLATES = Templates(Path(__file__).parent / "templates", {"code_block": _code_block})
