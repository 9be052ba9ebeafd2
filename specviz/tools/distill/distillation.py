"""Distillation of a drafter: the verifier writes texts, a student is trained on the verifier's distributions, the pair is measured.

All files are in one directory. Each is written completely or not at all, so that an interrupted distillation can resume.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import shutil
import threading
import timeit
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from specviz.analysis.sweep.items import SKILL_ITEMS
from specviz.compat.transformers import quiet_transformers
from specviz.errors import RequestError
from specviz.files import write_whole
from specviz.models.checkpoint import Checkpoint
from specviz.models.loading import load_pair, load_verifier, release_memory
from specviz.models.placement import dtype_name
from specviz.models.registry import AssetSource, find_pair
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress, silent
from specviz.tools.distill.evaluation import QUESTIONS, acceptance_rates, skill_rates
from specviz.tools.distill.prompts import held_out_prompts
from specviz.tools.distill.settings import DistillationSettings, raise_if_stopped
from specviz.tools.distill.skills.batches import SkillBatches
from specviz.tools.distill.skills.examples import training_examples
from specviz.tools.distill.student import make_student
from specviz.tools.distill.texts import Texts, write_texts
from specviz.tools.distill.training import Batches, Training, TrainingBatches
from specviz.tools.machine import describe_machine
from specviz.tools.templates import Templates

_FILE_BYTES = 9_000_000
"""Maximum size of a file of weights, in bytes. A Space accepts such files in a git push."""
_CARD = Path(__file__).with_name("model_card.md.j2")


class Distillation:
    """One distillation in `directory`, new or resumed."""

    def __init__(
        self,
        settings: DistillationSettings,
        directory: Path,
        *,
        device: str = "auto",
        progress: Progress = silent,
        stop: threading.Event | None = None,
    ) -> None:
        self._settings, self._directory, self._device = settings, directory, device
        self._progress, self._stop = progress, stop or threading.Event()

    def run(self) -> dict[str, Any]:
        """Do the remaining work. Returns the report, which is saved with the student's weights.

        Raises:
            RequestError: the directory holds a distillation with other settings, or `start` or `texts` cannot be read.
            StoppedError: `stop` was set.
            PairError, EngineError: raised by loading and generating.
        """
        settings, directory = self._settings, self._directory
        teacher: Any
        teacher, tokenizer = load_verifier(settings.verifier, device=self._device, dtype="float32")
        known = min(len(tokenizer), teacher.get_output_embeddings().weight.shape[0])
        # Inputs are read first, so that errors show before hours of work.
        begun = read_drafter(Path(settings.start), teacher, known) if settings.start else None
        given = sum((Texts.read(Path(folder), known) for folder in settings.texts), Texts([], []))
        settings.save(directory)
        texts = given = given.first(settings.tokens)
        if given.written < settings.tokens:
            texts = given + self._write_texts(settings.tokens - given.written)
        vocabulary = begun[1] if begun else self._choose_vocabulary(teacher, tokenizer, texts)
        kept = torch.arange(known) if vocabulary is None else vocabulary.kept
        # The student copies the verifier's weights before those are rounded.
        student = begun[0] if begun else make_student(teacher, settings.layers, kept)
        release_memory()  # training needs the memory of the pair that wrote the texts, which reference cycles still hold
        batches: Batches
        if settings.skills:
            questions = islice(training_examples(settings.seed), settings.skills)
            student.set_attn_implementation(
                "eager"
            )  # short sequences: on a CPU its backward pass is far faster
            former = copy.deepcopy(student).to(teacher.device, _fast_dtype(teacher.device))
            batches = SkillBatches(settings, texts, questions, former, vocabulary, tokenizer)
        else:
            teacher = teacher.to(_fast_dtype(teacher.device))
            batches = TrainingBatches(settings, texts, teacher, kept, vocabulary)
        student, figures = Training(settings, directory, student, batches).run(self._progress, self._stop)
        report = {
            "verifier": find_pair(settings.verifier).verifier_name,
            "layers": settings.layers,
            "vocabulary": len(kept),
            "format": settings.format,
            "parameters": sum(p.numel() for p in student.parameters()),
            "tokens": texts.written,
            "tokens_given": given.written,
            "questions": settings.skills,
            "passes": settings.passes,
            "device": describe_machine(str(teacher.device)),
            "start": _earlier_rates(settings.start),
        }
        return self._finish(student, vocabulary, report | figures)

    def _finish(
        self, student: Any, vocabulary: SmallVocabulary | None, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Store the student, load it as users do and measure it, and write its report and its card."""
        settings = self._settings
        self._progress(0.9, "Measuring the drafter")
        partial, final = self._directory / "student.part", self._directory / "student"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        Checkpoint.of(student, settings.format).save(partial, _FILE_BYTES)
        student.generation_config.save_pretrained(partial)
        if vocabulary is not None:
            vocabulary.save(partial)
        spec = replace(find_pair(settings.verifier), drafter=AssetSource(str(partial.resolve())))
        pair = load_pair(spec, device=self._device)
        report |= {
            "held_out": acceptance_rates(pair, self._stop),
            "held_out_prompts": len(held_out_prompts()),
        }
        if settings.skills:
            items = hashlib.sha256(SKILL_ITEMS.read_bytes()).hexdigest()
            report |= {
                "skills": skill_rates(pair, self._stop),
                "skill_questions": QUESTIONS,
                "items_sha256": items,
            }
        write_whole(partial / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        write_whole(partial / "README.md", Templates(_CARD.parent).render(_CARD.name, **report))
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        self._progress(1.0, "The drafter is ready")
        return report

    def _write_texts(self, tokens: int) -> Texts:
        """At least `tokens` tokens of text by the verifier. Reads the existing files and writes what is missing."""
        settings = self._settings
        pair = load_pair(settings.verifier, device=self._device)
        folder = self._directory / "texts"
        folder.mkdir(exist_ok=True)
        texts, seen = Texts([], []), set[tuple[int, ...]]()
        for index in itertools.count():
            if texts.written >= tokens:
                break
            path = folder / f"texts-{index:05d}.safetensors"
            if not path.exists():
                seed = settings.seed * 1_000_003 + index
                made = write_texts(pair, settings.rows, seed, settings.answer_tokens, self._stop)
                raise_if_stopped(self._stop)
                made.save(path)
            texts = texts + Texts.load(path).without(seen)
            words = f"The verifier writes: {texts.written:,} of {tokens:,} tokens"
            self._progress(0.4 * min(1.0, texts.written / tokens), words)
        return texts

    def _choose_vocabulary(self, verifier: Any, tokenizer: Any, texts: Texts) -> SmallVocabulary | None:
        """The most frequent tokens of `texts`; None for the whole vocabulary."""
        size = self._settings.vocabulary
        if not size:
            return None
        embedding = verifier.get_input_embeddings().weight.detach().cpu()
        ids = torch.tensor([t for s in texts.sequences for t in s])
        special = [t for t in tokenizer.all_special_ids if t < len(embedding)]
        return SmallVocabulary.of(torch.bincount(ids, minlength=len(embedding)), size, special, embedding)


def read_drafter(folder: Path, verifier: Any, known: int) -> tuple[Any, SmallVocabulary | None]:
    """Read a float32 drafter to continue from, and its vocabulary. Its ids must be among the verifier's first `known` ids.

    Raises:
        RequestError: the folder has no drafter, or the drafter has another tokenizer.
    """
    try:
        with quiet_transformers:
            student = Checkpoint.read(folder).module(torch.float32)
        vocabulary = SmallVocabulary.load(folder)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise RequestError(
            f"{folder} holds no drafter: name a folder with its config and weights."
        ) from error
    size, sizes = student.config.vocab_size, {known}
    if vocabulary is not None:
        size, sizes = len(vocabulary.reads), {known, len(verifier.get_input_embeddings().weight)}
    if size not in sizes:
        raise RequestError(
            f"{folder} holds a drafter of another tokenizer: its verifier's has {known:,} tokens."
        )
    return student.requires_grad_(True), vocabulary


def _earlier_rates(folder: str) -> dict[str, float]:
    """Acceptance rates of the drafter that training continued from, as in its report; {} if it has none."""
    with suppress(OSError, ValueError, KeyError):
        return dict(json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))["held_out"])
    return {}


def _fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 if the device multiplies faster in it (on a CPU, a short trial decides), otherwise float32."""
    if device.type == "cuda":
        return torch.bfloat16 if dtype_name("auto", device) == "bfloat16" else torch.float32
    half, whole = (torch.ones(512, 512, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    seconds = [min(timeit.repeat(lambda a=a: a @ a, number=1, repeat=7)) for a in (half, whole)]  # type: ignore[misc]
    return torch.bfloat16 if seconds[0] < 0.7 * seconds[1] else torch.float32
