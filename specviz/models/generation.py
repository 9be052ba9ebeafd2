"""Generation configs: what a checkpoint itself says of how its texts are generated, and what of that a pair can follow.

Knows transformers' generation configs. Temperature and truncation of sampling are settings of a request, with defaults of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from specviz.errors import PairError, quoted

_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            *("sequence_bias", "bad_words_ids", "begin_suppress_tokens", "constraints", "force_words_ids"),
            *("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"),
            *("watermarking_config", "stop_strings", "max_time", "dola_layers"),
        ),
        (None, [], {}),
    ),
    **dict.fromkeys(("guidance_scale", "encoder_repetition_penalty"), (None, 1)),
    **dict.fromkeys(
        ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens"), (None, 0)
    ),
    **dict.fromkeys(("num_beams", "num_beam_groups"), (None, 1)),
    **dict.fromkeys(("penalty_alpha", "token_healing"), (None, 0)),
}
"""Fields that change greedy texts and are not served, with the values at which they do nothing."""


def read_generation_config(folder: Path) -> GenerationConfig:
    """The generation config of a checkpoint's folder, as `from_pretrained` gives it to the model.

    Where generation_config.json is missing or damaged, it is made of config.json.
    """
    try:
        return GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    except OSError:
        record = json.loads((folder / "config.json").read_text("utf-8"))
        return GenerationConfig.from_model_config(record)


def end_ids(config: GenerationConfig) -> frozenset[int]:
    """Every id that ends a text: `generate` knows the generation config's, and neither config.json's nor the tokenizer's."""
    ends = config.eos_token_id
    several = ends if isinstance(ends, list | tuple) else [ends]
    return frozenset(int(it) for it in several if it is not None)


def suppressed_ids(config: GenerationConfig) -> frozenset[int]:
    """Ids that are never written."""
    return frozenset(config.suppress_tokens or ())


def check_is_served(config: GenerationConfig, name: str) -> None:
    """Refuse a model's generation config that asks for what changes its greedy text and is not served.

    Raises:
        PairError: it names the field; the sentence calls the model `name`.
    """
    for field, idle in _WITHOUT_EFFECT.items():
        value = getattr(config, field, None)
        if value not in idle:
            raise PairError(
                f"{name}'s generation config asks for {field}={quoted(value)}, which SpecViz does not serve: remove it "
                "from generation_config.json."
            )
