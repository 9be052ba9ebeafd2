"""What `custom_generate` needs of transformers beyond its documented names: each test says what a change breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TextStreamer

from specviz.compat.transformers import attention_of, eos_ids, generate_arguments, padding_id
from tests.support.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory: Path = tmp_path_factory.mktemp("model")
    return tiny_model("llama", len(tiny_tokenizer(directory)), 1, directory, eos_token_id=0)


def called(model: Any, **options: Any) -> dict[str, Any]:
    """What a custom function finds when `generate` calls it."""
    found: dict[str, Any] = {}

    def custom(model: Any, input_ids: Any, generation_config: Any, **_: Any) -> Any:
        found.update(arguments=generate_arguments(), config=generation_config)
        return input_ids

    ids = torch.tensor([[5, 6]])
    model.generate(ids, custom_generate=custom, max_new_tokens=2, do_sample=False, **options)
    return found


def test_generates_arguments_are_in_its_frame(model: Any, tmp_path: Path) -> None:
    streamer = TextStreamer(tiny_tokenizer(tmp_path))
    arguments = called(model, streamer=streamer, pad_token_id=0)["arguments"]
    assert arguments.get("streamer") is streamer, (
        "transformers' generate no longer keeps `streamer` in a variable of that name: custom_generate would not stream"
    )
    assert "assistant_model" in arguments, (
        "transformers' generate has no `assistant_model` any more: remove the check that refuses one"
    )
    assert generate_arguments() == {}, "outside of generate there are no arguments to be found"


def test_a_prepared_config_tells_its_special_ids(model: Any) -> None:
    config = called(model, eos_token_id=[3, 7], pad_token_id=9)["config"]
    assert (eos_ids(config), padding_id(config)) == ({3, 7}, 9), (
        "a prepared GenerationConfig no longer has _eos_token_tensor and _pad_token_tensor as tensors of ids"
    )


def test_a_config_without_special_ids_tells_none(model: Any) -> None:
    own = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = None
    try:
        config = called(model)["config"]
    finally:
        model.generation_config.eos_token_id = own
    assert (eos_ids(config), padding_id(config)) == (frozenset(), None), (
        "a prepared GenerationConfig no longer has None for special ids that are not set"
    )


def test_a_model_tells_its_attention(model: Any) -> None:
    before = attention_of(model)
    model.set_attn_implementation("eager")
    after = attention_of(model)
    model.set_attn_implementation(before)
    assert (before, after) == ("sdpa", "eager"), (
        "a model's config no longer has _attn_implementation: unfit attention could not be refused"
    )
