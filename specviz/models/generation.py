"""Generation configs: a checkpoint's own settings for generating texts, and which of them a pair serves.

Temperature and truncation are not taken from them: they are a request's settings, with their own defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from specviz.errors import PairError, quoted

_UNSERVED: Mapping[str, Any] = {
    "sequence_bias": None,
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "watermarking_config": None,
    "guidance_scale": 1,
    "min_length": 0,
    "encoder_repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_new_tokens": 0,
    "num_beams": 1,
    "penalty_alpha": 0,
    "constraints": None,
    "force_words_ids": None,
    "dola_layers": None,
    "num_beam_groups": 1,
    "stop_strings": None,
    "max_time": None,
    "token_healing": 0,
}
"""Fields that change greedy texts and are not served, each with a value at which it does nothing; so it does at None, [] and {}."""


def read_generation_config(folder: Path) -> GenerationConfig:
    """The generation config of a checkpoint's folder, as `from_pretrained` gives it to the model.

    Where generation_config.json is missing or damaged, it is made from config.json.
    """
    try:
        return GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    except OSError:
        record = json.loads((folder / "config.json").read_text("utf-8"))
        return GenerationConfig.from_model_config(record)


def end_ids(config: GenerationConfig) -> frozenset[int]:
    """Every id that ends a text: as in `generate`, the generation config's alone, not config.json's or the tokenizer's."""
    ends = config.eos_token_id
    return frozenset() if ends is None else frozenset(ends if isinstance(ends, list | tuple) else [ends])


def check_is_served(config: GenerationConfig, name: str) -> None:
    """Refuse a generation config that sets one of `_UNSERVED`.

    Raises:
        PairError: the sentence names the field and calls the model `name`.
    """
    for field, idle in _UNSERVED.items():
        value = getattr(config, field, None)
        if value not in (None, [], {}, idle):
            raise PairError(
                f"{name}'s generation config asks for {field}={quoted(value)}, which SpecViz does not serve: remove it "
                "from generation_config.json."
            )
