"""Training texts: a verifier's answers to prompts from templates, and to user turns that the verifier writes.

User turns are sampled after the chat template's user header, as in Magpie (Xu et al. 2024).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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


class Text(NamedTuple):
    """The ids of a prompt, followed by the ids that the verifier wrote, which begin at index `start`."""

    ids: tuple[int, ...]
    start: int


def written(texts: Iterable[Text]) -> int:
    """Number of tokens that the verifier wrote."""
    return sum(len(ids) - start for ids, start in texts)


def save_texts(texts: Sequence[Text], path: Path) -> None:
    """Write texts to a safetensors file, completely or not at all."""
    columns = {
        "tokens": [token for ids, _ in texts for token in ids],
        "lengths": [len(ids) for ids, _ in texts],
        "starts": [start for _, start in texts],
    }
    write_whole(path, save({name: torch.tensor(each, dtype=torch.int32) for name, each in columns.items()}))


def load_texts(path: Path, known: int) -> list[Text]:
    """Read what `save_texts` wrote.

    Raises:
        RequestError: the file cannot be read, or has ids outside [0, `known`), which belong to another tokenizer.
    """
    try:
        columns = load_file(path)
        sequences, starts = columns["tokens"].split(columns["lengths"].tolist()), columns["starts"].tolist()
        if columns["tokens"].max() >= known or columns["tokens"].min() < 0:
            raise ValueError("the ids are those of another tokenizer")
    except (OSError, SafetensorError, KeyError, RuntimeError, ValueError) as error:
        raise RequestError(f"{path} holds no texts that distill wrote for this verifier.") from error
    return [Text(tuple(ids.tolist()), start) for ids, start in zip(sequences, starts, strict=True)]


def write_texts(pair: ModelPair, count: int, seed: int, answer_tokens: int) -> list[Text]:
    """Let the verifier answer `count` prompts in one batch. Up to a quarter of the prompts are its own user turns, the rest `made_prompts`.

    A base model has no chat template: all its prompts are `made_prompts`, and it continues them instead of answering.
    """
    engine = Engine(pair, max_sequences=count)
    draw = random.Random(seed)

    def write(prompts: list[dict[str, Any]], **options: Any) -> list[Run]:
        # No repetition penalty, since a drafter learns the verifier's own distributions.
        options |= {"method": "verifier_only", "repetition_penalty": 1.0}
        requests = [Request(**each, seed=draw.getrandbits(32), **options) for each in prompts]
        return engine.generate(requests)

    asked: list[dict[str, Any]] = []
    if pair.is_chat:
        chat = [{"role": "user", "content": MARK}]
        header = str(pair.tokenizer.apply_chat_template(chat, tokenize=False)).partition(MARK)[0]
        ids = list(pair.tokenizer(header, add_special_tokens=False)["input_ids"])
        turns = write([{"token_ids": ids}] * (count // 4), temperature=1.0, max_new_tokens=_USER_TOKENS)
        asked = [{"prompt": turn.text} for turn in turns if turn.stop_reason == "eos" and turn.text.strip()]
    asked += [{"prompt": prompt} for prompt in islice(made_prompts(draw), count - len(asked))]
    for index, each in enumerate(asked):
        each["temperature"] = _TEMPERATURES[index % len(_TEMPERATURES)]
    runs = write(asked, max_new_tokens=answer_tokens)
    return [Text((*run.prompt_ids, *run.token_ids), len(run.prompt_ids)) for run in runs]
