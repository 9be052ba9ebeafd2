"""What SpecViz takes from transformers beyond its documentation is still there and still does what it did.

Each test fails with a sentence that says what has changed and what SpecViz loses by it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import transformers
from transformers import GenerationConfig

from tests.support.tiny import tiny_model

HERE = f"transformers {transformers.__version__}"

RE_EXPORTED = [
    ("transformers.cache_utils", "CacheLayerMixin", "the KV cache's layers cannot be made"),
    (
        "transformers.integrations.sdpa_attention",
        "sdpa_attention_forward",
        "prefill has no attention to fall back to",
    ),
    ("transformers.masking_utils", "sdpa_mask", "grouped attention has no masks"),
]


@pytest.mark.parametrize(("module", "name", "lost"), RE_EXPORTED)
def test_names_are_where_they_were(module: str, name: str, lost: str) -> None:
    try:
        found = hasattr(importlib.import_module(module), name)
    except ImportError:
        found = False
    assert found, (
        f"{HERE} has no {module}.{name}: {lost}. Find its new place for specviz.compat.transformers."
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny_model("llama", 40, 1, tmp_path_factory.mktemp("model"))


def compat() -> Any:
    """The module, imported where its names are known to be there or this test fails."""
    try:
        return importlib.import_module("specviz.compat.transformers")
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{HERE} has moved what specviz.compat.transformers imports: {error}.")


def test_a_models_attention_can_be_read(model: Any) -> None:
    for name in ("eager", "sdpa"):
        model.set_attn_implementation(name)
        found = compat().attention_of(model)
        assert found == name, (
            f"{HERE} says {found!r} of a model whose attention was set to {name!r}: config._attn_implementation no "
            "longer names it, so that grouped attention is used where it must not be, or never."
        )


def test_generate_settles_on_the_ids_that_pad_and_end(model: Any) -> None:
    seen: list[GenerationConfig] = []

    def decode(model: Any, input_ids: Any, generation_config: GenerationConfig, **_: Any) -> torch.Tensor:
        seen.append(generation_config)
        return input_ids

    model.generate(
        torch.tensor([[1, 2]]), custom_generate=decode, max_new_tokens=1, eos_token_id=[5, 7], pad_token_id=3
    )
    model.generate(torch.tensor([[1, 2]]), custom_generate=decode, max_new_tokens=1)
    found = [(compat().padding_id(config), compat().eos_ids(config)) for config in seen]
    assert found == [(3, {5, 7}), (None, frozenset())], (
        f"{HERE} no longer keeps the ids that pad and end a text in _pad_token_tensor and _eos_token_tensor of a "
        "prepared config: cascade_generate would not end, or would pad with something else."
    )


def test_the_arguments_of_generate_can_be_read_from_within(model: Any) -> None:
    seen: list[Mapping[str, Any]] = []

    def decode(model: Any, input_ids: Any, **_: Any) -> torch.Tensor:
        seen.append(dict(compat().generate_arguments()))
        return input_ids

    class Streamer(transformers.TextStreamer):
        def __init__(self) -> None: ...
        def put(self, value: Any) -> None: ...
        def end(self) -> None: ...

    streamer = Streamer()
    assert compat().generate_arguments() == {}
    given = {"streamer": streamer, "synced_gpus": False, "assistant_tokenizer": "another"}
    model.generate(torch.tensor([[1, 2]]), custom_generate=decode, max_new_tokens=1, **given)
    [arguments] = seen
    missing = [name for name in (*given, "assistant_model") if name not in arguments]
    assert not missing, (
        f"{HERE}: {missing} of `generate` cannot be read any more, from its variables or its decorator's: cascade_generate "
        "would not stream, or would take no notice of an assistant. If custom_generate is given them now, take them from there."
    )
    assert given.items() <= arguments.items()
    assert not {"cache", "past_key_values"} & set(arguments), (
        f"{HERE}: `generate` has a variable for its cache: cascade_generate takes it for one that the caller gave."
    )
