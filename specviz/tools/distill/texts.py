"""Training texts: a verifier's answers to prompts from templates, and to user turns that the verifier writes.

User turns are sampled after the chat template's user header, as in Magpie (Xu et al. 2024).
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.files import write_whole
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.tools.distill.prompts import made_prompts

_TEMPERATURES = (1.0, 1.0, 0.7, 0.0)
"""Temperatures of the answers, used in turn."""
_USER_TOKENS = 48
"""Maximum length of a user turn in tokens. Longer turns are discarded."""
MARK = "\u2603"


@dataclass(frozen=True)
class Texts:
    """Sequences of ids, with the index at which the verifier's own text starts in each."""

    sequences: list[list[int]]
    starts: list[int]

    @property
    def written(self) -> int:
        """Number of tokens that the verifier wrote."""
        return sum(len(s) - start for s, start in zip(self.sequences, self.starts, strict=True))

    def __add__(self, other: Texts) -> Texts:
        """The texts of both, concatenated."""
        return Texts(self.sequences + other.sequences, self.starts + other.starts)

    def first(self, tokens: int) -> Texts:
        """The first texts that have at least `tokens` written tokens together; all if there are fewer."""
        ends = accumulate(len(s) - start for s, start in zip(self.sequences, self.starts, strict=True))
        count = 1 + sum(1 for end in ends if end < tokens)
        return Texts(self.sequences[:count], self.starts[:count])

    def without(self, seen: set[tuple[int, ...]]) -> Texts:
        """The texts that are not in `seen`, to which they are added. Repeated prompts have the same greedy answer."""
        fresh = Texts([], [])
        for sequence, start in zip(self.sequences, self.starts, strict=True):
            if tuple(sequence) not in seen:
                seen.add(tuple(sequence))
                fresh.sequences.append(sequence)
                fresh.starts.append(start)
        return fresh

    def save(self, path: Path) -> None:
        """Write to a safetensors file, completely or not at all."""
        tensors = {
            "tokens": torch.tensor([t for s in self.sequences for t in s], dtype=torch.int32),
            "lengths": torch.tensor([len(s) for s in self.sequences], dtype=torch.int32),
            "starts": torch.tensor(self.starts, dtype=torch.int32),
        }
        write_whole(path, save(tensors))

    @staticmethod
    def load(path: Path) -> Texts:
        """Read what `save` wrote."""
        tensors = load_file(path)
        parts = tensors["tokens"].split(tensors["lengths"].tolist())
        return Texts([part.tolist() for part in parts], tensors["starts"].tolist())

    @staticmethod
    def read(folder: Path, known: int) -> Texts:
        """Read all files in a folder that `save` wrote. All ids must be below `known`.

        Raises:
            RequestError: there are no files, a file cannot be read, or its ids are those of another tokenizer.
        """
        texts = Texts([], [])
        try:
            for path in sorted(folder.glob("*.safetensors")):
                texts += Texts.load(path)
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise RequestError(f"{path} holds no texts: name folders that distill wrote.") from error
        if not texts.sequences:
            raise RequestError(f"{folder} holds no texts: name folders that distill wrote.")
        if any(not 0 <= token < known for sequence in texts.sequences for token in sequence):
            raise RequestError(f"{folder} has ids of another tokenizer: the verifier's are below {known:,}.")
        return texts


def _user_header(tokenizer: Any) -> list[int]:
    """Ids of the chat template up to the content of a user turn."""
    text = tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    return list(tokenizer(text.partition(MARK)[0], add_special_tokens=False)["input_ids"])


def write_texts(
    pair: ModelPair, count: int, seed: int, answer_tokens: int, stop: threading.Event | None = None
) -> Texts:
    """Let the verifier write `count` answers in one batch: a quarter to its own user turns, the rest to made prompts.

    A base model has no chat template and continues made prompts. `stop` aborts the batch.
    """
    engine = Engine(pair, max_sequences=count)
    draw = random.Random(seed)

    def write(prompts: list[dict[str, Any]], **options: Any) -> list[Run]:
        # No repetition penalty, since a drafter learns the verifier's own distributions.
        options |= {"method": "verifier_only", "repetition_penalty": 1.0}
        requests = [Request(**each, seed=draw.getrandbits(32), **options) for each in prompts]
        return engine.generate(requests, stop=stop)

    asked: list[dict[str, Any]] = []
    if pair.is_chat:
        header = [{"token_ids": _user_header(pair.tokenizer)}] * (count // 4)
        turns = write(header, temperature=1.0, max_new_tokens=_USER_TOKENS)
        asked = [{"prompt": turn.text} for turn in turns if turn.stop_reason == "eos" and turn.text.strip()]
    asked += [{"prompt": prompt} for prompt in islice(made_prompts(draw), count - len(asked))]
    for index, each in enumerate(asked):
        each["temperature"] = _TEMPERATURES[index % len(_TEMPERATURES)]
    runs = write(asked, max_new_tokens=answer_tokens)
    return Texts([run.prompt_ids + run.token_ids for run in runs], [len(run.prompt_ids) for run in runs])
