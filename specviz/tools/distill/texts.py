"""What a verifier writes when nobody gives it a data set: its own user turns, and answers to them and to our prompts.

User turns are sampled after the chat template's user header, as in Magpie (Xu et al. 2024). Knows pairs and the
engine; knows nothing of students and training.
"""

from __future__ import annotations

import json
import os
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from specviz.engine.engine import Engine
from specviz.resources import ASSETS
from specviz.schema.settings import Request
from specviz.schema.trace import Run

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair

PROMPTS = ASSETS / "prompts.json"
TEMPERATURES = (1.0, 1.0, 0.7, 0.0)
"""Answers are written at these in turn: drafting must work for all of them, and sampling is hardest."""
USER_TOKENS = 48
"""A user turn that has not ended by then is thrown away."""
_MARK = "\u2603"


def prompts(part: str) -> list[str]:
    """Our own prompts: "train", or "held_out", which no training ever sees."""
    return [
        prompt for kind in json.loads(PROMPTS.read_text(encoding="utf-8")).values() for prompt in kind[part]
    ]


@dataclass(frozen=True)
class Texts:
    """What the verifier wrote: sequences of ids, and from where on each is its own."""

    sequences: list[list[int]]
    starts: list[int]

    @property
    def written(self) -> int:
        """Tokens the verifier wrote."""
        return sum(len(s) - start for s, start in zip(self.sequences, self.starts, strict=True))

    def __add__(self, other: Texts) -> Texts:
        """Both, one after the other."""
        return Texts(self.sequences + other.sequences, self.starts + other.starts)

    def save(self, path: Path) -> None:
        """Write to a safetensors file, whole or not at all."""
        partial = path.with_suffix(".part")
        tensors = {
            "tokens": torch.tensor([t for s in self.sequences for t in s], dtype=torch.int32),
            "lengths": torch.tensor([len(s) for s in self.sequences], dtype=torch.int32),
            "starts": torch.tensor(self.starts, dtype=torch.int32),
        }
        save_file(tensors, partial)
        os.replace(partial, path)

    @staticmethod
    def load(path: Path) -> Texts:
        """Read what `save` wrote."""
        tensors = load_file(path)
        parts = tensors["tokens"].split(tensors["lengths"].tolist())
        return Texts([part.tolist() for part in parts], tensors["starts"].tolist())


def _user_header(tokenizer: Any) -> list[int]:
    """Ids of the chat template up to where a user begins to speak."""
    text = tokenizer.apply_chat_template([{"role": "user", "content": _MARK}], tokenize=False)
    return list(tokenizer(text.partition(_MARK)[0], add_special_tokens=False)["input_ids"])


def write_texts(
    pair: ModelPair,
    count: int,
    seed: int,
    *,
    rows: int,
    answer_tokens: int,
    stop: threading.Event | None = None,
) -> Texts:
    """Let the verifier write: half of `count` answers are to its own user turns, half to our prompts.

    A base model, which has no chat template, continues our prompts. `stop` leaves the texts broken off.
    """
    engine = Engine(pair, max_rows=rows)
    chance = random.Random(seed)

    def write(asked: list[dict[str, Any]], **options: Any) -> list[Run]:
        requests = [
            Request(**one, method="verifier_only", seed=chance.getrandbits(32), **options) for one in asked
        ]
        return engine.generate(requests, stop=stop)

    asked: list[dict[str, Any]] = []
    if pair.is_chat:
        header = _user_header(pair.tokenizer)
        turns = write([{"token_ids": header}] * (count // 2), temperature=1.0, max_new_tokens=USER_TOKENS)
        asked = [{"prompt": turn.text} for turn in turns if turn.stop_reason == "eos" and turn.text.strip()]
    own = prompts("train")
    asked += [{"prompt": chance.choice(own)} for _ in range(count - len(asked))]
    for index, one in enumerate(asked):
        one["temperature"] = TEMPERATURES[index % len(TEMPERATURES)]
    runs = write(asked, max_new_tokens=answer_tokens)
    return Texts([run.prompt_ids + run.token_ids for run in runs], [len(run.prompt_ids) for run in runs])
