"""Distillation of a drafter: the verifier writes texts, a student is trained on the verifier's distributions, the pair is measured.

All files are in one directory. Texts and checkpoints are written completely or not at all, so that an interrupted distillation can resume.
"""

from __future__ import annotations

import copy
import itertools
import json
import shutil
import timeit
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from specviz.compat.transformers import quiet_transformers
from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.files import write_whole
from specviz.models.checkpoint import Checkpoint
from specviz.models.layer_skip import skip_layers
from specviz.models.loading import load_pair, load_verifier, release_memory
from specviz.models.pair import ModelPair
from specviz.models.placement import dtype_name
from specviz.models.registry import AssetSource, find_pair
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress, silent
from specviz.schema.settings import Request
from specviz.tools.distill.prompts import held_out_prompts
from specviz.tools.distill.settings import DistillationSettings
from specviz.tools.distill.skills import training_examples
from specviz.tools.distill.texts import (
    Text,
    load_texts,
    save_texts,
    write_texts,
    written,
)
from specviz.tools.distill.training import FREE, Batches, Row, Training, skill_batches
from specviz.tools.machine import describe_machine
from specviz.tools.templates import render

_FILE_BYTES = 9_000_000
"""Maximum size of a file of weights, in bytes. A Hugging Face Space accepts such files in a git push."""
_TEMPERATURES = (1.0, 0.7, 0.0)
"""Temperatures at which a drafter's acceptance rate is measured."""
_CARD = Path(__file__).with_name("model_card.md.j2")


def distill(
    settings: DistillationSettings,
    directory: Path,
    *,
    device: str = "auto",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Do what remains of the distillation in `directory`. Returns the report, which is saved with the student's weights.

    Raises:
        RequestError: the directory holds a distillation with other settings, the verifier lacks one of the `layers`, or `start` or `texts`
            cannot be read.
        PairError, EngineError: raised by loading and generating.
    """
    teacher: Any
    teacher, tokenizer = load_verifier(settings.verifier, device=device, dtype="float32")
    embedding = teacher.get_input_embeddings().weight.detach().cpu()
    known = min(len(tokenizer), teacher.get_output_embeddings().weight.shape[0])
    # Inputs are checked first, so that errors show before hours of work.
    count = teacher.config.num_hidden_layers
    if absent := [layer for layer in settings.layers if not -count <= layer < count]:
        raise RequestError(f"The verifier has no layer {absent[0]}: they are {-count} to {count - 1}.")
    begun = read_drafter(Path(settings.start), known, len(embedding)) if settings.start else None
    texts = _read_texts(settings, known)
    settings.save(directory)
    if written(texts) < settings.tokens:
        _write_texts(settings, texts, directory / "texts", device, progress)
    if begun:
        student, vocabulary = begun
    else:
        counts = torch.bincount(torch.tensor([t for ids, _ in texts for t in ids]), minlength=len(embedding))
        counts[known:] = -1  # padding
        special = [token for token in tokenizer.all_special_ids if token < len(embedding)]
        vocabulary = SmallVocabulary.of(counts, settings.vocabulary or known, special, embedding)
        # The student copies the verifier's weights before those are rounded.
        student = make_student(teacher, settings.layers, vocabulary.kept)
    release_memory()  # training needs the memory of the pair that wrote the texts, which reference cycles still hold
    fast = _fast_dtype(teacher.device)
    if settings.skills:
        questions = list(itertools.islice(training_examples(settings.seed), settings.skills))
        student.set_attn_implementation("eager")  # short sequences: on a CPU its backward pass is far faster
        former = copy.deepcopy(student).to(teacher.device, fast)
        batches = skill_batches(settings, texts, questions, former, vocabulary, tokenizer)
    else:
        batches = Batches(settings, teacher.to(fast), vocabulary.kept, vocabulary.reads)
        batches.add([Row([*ids], [FREE] * len(ids)) for ids, _ in texts])  # user turns are learned too
    student, figures = Training(settings, directory, student, batches).run(progress)
    progress(0.9, "Measuring the drafter")
    folder, weights = directory / "student", "Q4_1" if settings.four_bits else "Q8_0"
    _store(student, vocabulary, weights, folder)
    spec = replace(find_pair(settings.verifier), drafter=AssetSource(str(folder.resolve())))
    report = {
        "verifier": find_pair(settings.verifier).verifier_name,
        "layers": () if settings.start else settings.layers,
        "vocabulary": len(vocabulary.kept),
        "format": weights,
        "parameters": sum(each.numel() for each in student.parameters()),
        "tokens": written(texts),
        "questions": settings.skills,
        "passes": settings.passes,
        "device": describe_machine(str(teacher.device)),
        **figures,
        "held_out": _acceptance_rates(load_pair(spec, device=device)),  # as users load it
        "held_out_prompts": len(held_out_prompts()),
    }
    write_whole(folder / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    write_whole(folder / "README.md", render(_CARD, {}, **report))
    progress(1.0, "The drafter is ready")
    return report


def make_student(verifier: Any, layers: tuple[int, ...], kept: Tensor) -> Any:
    """A trainable float32 copy of the verifier on the CPU, with only these `layers` and the tokens `kept` [N] as its vocabulary.

    Raises:
        PairError: the verifier's layers cannot be found.
    """
    count = verifier.config.num_hidden_layers
    skipped = set(range(count)) - {layer % count for layer in layers}
    student = copy.deepcopy(skip_layers(verifier, skipped)).float().cpu()
    embedding, head = student.get_input_embeddings().weight.detach(), student.get_output_embeddings()
    student.set_input_embeddings(nn.Embedding.from_pretrained(embedding[kept], freeze=False))
    small = nn.Linear(embedding.shape[1], len(kept), bias=head.bias is not None)
    small.load_state_dict({name: value[kept] for name, value in head.state_dict().items()})
    student.set_output_embeddings(small)
    student.config.vocab_size = len(kept)
    student.tie_weights()
    return student.requires_grad_(True)


def _store(student: Any, vocabulary: SmallVocabulary, weights: str, folder: Path) -> None:
    """Write a drafter to a new folder; `weights` is the format of its matrices."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    Checkpoint.of(student, weights).save(folder, _FILE_BYTES)
    student.generation_config.save_pretrained(folder)
    vocabulary.save(folder)


def _read_texts(settings: DistillationSettings, known: int) -> dict[Text, None]:
    """The first distinct texts in the folders `settings.texts`, up to the number of tokens to train on."""
    paths = [path for folder in settings.texts for path in sorted(Path(folder).glob("*.safetensors"))]
    if settings.texts and not paths:
        raise RequestError(f"{settings.texts[0]} holds no texts: name folders that distill wrote.")
    texts = dict[Text, None]()  # repeated prompts have the same greedy answer
    for path in paths:
        if written(texts) < settings.tokens:
            texts |= dict.fromkeys(load_texts(path, known))
    return texts


def _write_texts(
    settings: DistillationSettings, texts: dict[Text, None], folder: Path, device: str, progress: Progress
) -> None:
    """Add distinct texts of the verifier to `texts` until they suffice for training. Reads the files in `folder` and adds missing ones."""
    pair = load_pair(settings.verifier, device=device)
    folder.mkdir(exist_ok=True)
    for index in itertools.count(len(texts)):  # other seeds than those of given texts
        if (count := written(texts)) >= settings.tokens:
            break
        words = f"The verifier writes: {count:,} of {settings.tokens:,} tokens"
        progress(0.4 * count / settings.tokens, words)
        path = folder / f"texts-{index:05d}.safetensors"
        if not path.exists():
            seed = settings.seed * 1_000_003 + index
            save_texts(write_texts(pair, settings.rows, seed, settings.answer_tokens), path)
        texts |= dict.fromkeys(load_texts(path, len(pair.tokenizer)))


def read_drafter(folder: Path, known: int, size: int) -> tuple[Any, SmallVocabulary]:
    """Read a drafter to continue from, in float32, and its vocabulary.

    `known` is the number of the verifier's ids, and `size` their number with padding.

    Raises:
        RequestError: the folder has no drafter, or the drafter has another tokenizer.
    """
    try:
        with quiet_transformers:
            student = Checkpoint.read(folder).module(torch.float32)
        every = torch.arange(student.config.vocab_size)
        vocabulary = SmallVocabulary.load(folder) or SmallVocabulary(every, every)
        if len(vocabulary.reads) not in (known, size):
            raise ValueError("the drafter has another tokenizer")
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise RequestError(
            f"{folder} holds no drafter with the verifier's {known:,} tokens: name a folder with its config and weights."
        ) from error
    return student.requires_grad_(True), vocabulary


def _acceptance_rates(pair: ModelPair) -> dict[str, float]:
    """The lossless acceptance rate (accepted / examined draft tokens) over all held-out prompts, by name: "lossless, T = 0.7"."""
    rates = {}
    # The rate does not depend on the draft length. A short one is faster while the drafter is poor.
    settings: dict[str, Any] = {"max_new_tokens": 96, "draft_length": 2, "repetition_penalty": 1.0}
    for temperature in _TEMPERATURES:
        settings |= {"method": "speed", "lenience": 0.0, "temperature": temperature}
        requests = [Request(prompt, seed=seed, **settings) for seed, prompt in enumerate(held_out_prompts())]
        rounds = [each for run in Engine(pair).generate(requests) for each in run.rounds]
        rate = sum(each.accepted for each in rounds) / sum(each.examined for each in rounds)
        rates[f"lossless, T = {temperature:g}"] = round(rate, 4)
    return rates


def _fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 if the device multiplies faster in it (on a CPU, a short trial decides), otherwise float32."""
    if device.type == "cuda":
        return torch.bfloat16 if dtype_name("auto", device) == "bfloat16" else torch.float32
    half, whole = (torch.ones(512, 512, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    seconds = [min(timeit.repeat(lambda a=a: a @ a, number=1, repeat=7)) for a in (half, whole)]  # type: ignore[misc]
    return torch.bfloat16 if seconds[0] < 0.7 * seconds[1] else torch.float32
