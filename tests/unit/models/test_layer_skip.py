"""Layer skip: a drafter that computes what a shallower copy would, without a weight of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from specviz.errors import PairError
from specviz.models.layer_skip import skip_layers
from tests.support.tiny import tiny_model


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_skipping_layers_equals_a_shallower_model(family: str, tmp_path: Path) -> None:
    """Without a weight of its own, and the verifier stays whole."""
    verifier = tiny_model(family, 60, 1, tmp_path, layers=6)
    ids = torch.randint(0, 60, (2, 30), generator=torch.Generator().manual_seed(0))
    before = verifier(ids).logits
    drafter = skip_layers(verifier, range(1, 3))
    assert torch.equal(verifier(ids).logits, before)
    assert drafter.config.num_hidden_layers == 4
    for layer, number in zip(drafter.model.layers, (0, 3, 4, 5), strict=True):
        own, shared = layer.state_dict(), verifier.model.layers[number].state_dict()
        assert {name: it.data_ptr() for name, it in own.items()} == {
            name: it.data_ptr() for name, it in shared.items()
        }
        if types := getattr(verifier.config, "layer_types", None):
            assert drafter.config.layer_types[layer.self_attn.layer_idx] == types[number]
    shallow = AutoModelForCausalLM.from_config(drafter.config, dtype=torch.float64).eval()
    shallow.load_state_dict(drafter.state_dict())
    assert torch.equal(drafter(ids, use_cache=False).logits, shallow(ids, use_cache=False).logits)
    # And with transformers' own cache, whose layers are counted from 0 without gaps.
    greedy: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(drafter.generate(ids, **greedy), shallow.generate(ids, **greedy))


def test_layers_that_cannot_be_skipped_are_refused(tmp_path: Path) -> None:
    model = tiny_model("llama", 60, 1, tmp_path / "llama", layers=6)
    for layers in (range(6), range(5, 7), [-1]):
        with pytest.raises(PairError):
            skip_layers(model, layers)
    with pytest.raises(PairError, match="GPT2LMHeadModel"):
        skip_layers(tiny_model("gpt2", 60, 1, tmp_path / "gpt2"), [0])
