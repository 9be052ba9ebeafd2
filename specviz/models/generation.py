"""Generation configs: what a checkpoint itself says of how its texts are generated, and what of that a pair can follow.

Temperature and truncation of sampling are settings of a request, with defaults of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from specviz.errors import PairError, quoted

PROCESSORS = (
    *(
        "sequence_bias",
        "bad_words_ids",
        "begin_suppress_tokens",
        "forced_bos_token_id",
        "forced_eos_token_id",
    ),
    *("exponential_decay_length_penalty", "watermarking_config", "guidance_scale", "min_length"),
    *("encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_new_tokens"),
)
"""Fields of logits processors that change greedy texts and that a pair does not follow."""
MODES = ("num_beams", "penalty_alpha", "constraints", "force_words_ids", "dola_layers")
"""Fields that ask `generate` for another way of decoding."""
_OTHERS = ("num_beam_groups", "stop_strings", "max_time", "token_healing")
_IDLE: Mapping[str, Any] = {
    **dict.fromkeys(("guidance_scale", "encoder_repetition_penalty", "num_beams", "num_beam_groups"), 1),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "penalty_alpha"), 0),
    **dict.fromkeys(("min_length", "min_new_tokens", "token_healing"), 0),
}
"""At these values fields do nothing, as at None, [] and {}."""


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


def check_is_served(config: GenerationConfig, name: str) -> None:
    """Refuse a model's generation config that asks for what changes its greedy text and is not served.

    Raises:
        PairError: it names the field; the sentence calls the model `name`.
    """
    for field in (*PROCESSORS, *MODES, *_OTHERS):
        value = getattr(config, field, None)
        if value not in (None, [], {}, _IDLE.get(field)):
            raise PairError(
                f"{name}'s generation config asks for {field}={quoted(value)}, which SpecViz does not serve: remove it "
                "from generation_config.json."
            )
