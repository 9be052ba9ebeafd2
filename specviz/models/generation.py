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
    **dict.fromkeys(("sequence_bias", "bad_words_ids", "begin_suppress_tokens", "forced_bos_token_id")),
    **dict.fromkeys(("forced_eos_token_id", "exponential_decay_length_penalty", "watermarking_config")),
    **dict.fromkeys(("constraints", "force_words_ids", "dola_layers", "stop_strings", "max_time")),
    **dict.fromkeys(
        ("min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), 0
    ),
    **dict.fromkeys(("penalty_alpha", "token_healing"), 0),
    **dict.fromkeys(("guidance_scale", "encoder_repetition_penalty", "num_beams", "num_beam_groups"), 1),
}
"""Fields that change greedy texts and are not served, each with a value at which it does nothing; so it does at None, [] and {}."""


def read_generation_config(folder: Path) -> GenerationConfig:
    """The generation config of a checkpoint's folder, as `from_pretrained` gives it to the model.

    Derived from config.json where generation_config.json is missing or damaged.
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
