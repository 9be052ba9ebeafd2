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
def test_skipping_layers_equals_a_truncated_copy(family: str, tmp_path: Path) -> None:
    verifier = tiny_model(family, 60, 1, tmp_path / "whole", layers=6)
    drafter = skip_layers(verifier, range(1, 3))

    copy = tiny_model(family, 60, 1, tmp_path / "copy", layers=4)
    if hasattr(copy.config, "layer_types") and copy.config.layer_types:
        assert drafter.config.layer_types == [verifier.config.layer_types[i] for i in (0, 3, 4, 5)]
        copy = AutoModelForCausalLM.from_config(drafter.config, dtype=torch.float64).eval()
    weights = {}
    for name, weight in verifier.state_dict().items():
        parts = name.split(".")
        where = parts.index("layers") + 1 if "layers" in parts else None
        if where is None or int(parts[where]) not in (1, 2):
            if where is not None and int(parts[where]) > 2:
                parts[where] = str(int(parts[where]) - 2)
            weights[".".join(parts)] = weight.clone()
    copy.load_state_dict(weights)

    ids = torch.randint(0, 60, (2, 30), generator=torch.Generator().manual_seed(0))
    assert torch.equal(drafter(ids, use_cache=False).logits, copy(ids, use_cache=False).logits)
    # And with transformers' own cache, whose layers are counted from 0 without gaps.
    greedy: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(drafter.generate(ids, **greedy), copy.generate(ids, **greedy))


def test_skipping_layers_makes_no_new_weight_and_leaves_the_verifier_whole(tmp_path: Path) -> None:
    verifier = tiny_model("llama", 60, 1, tmp_path, layers=6)
    ids = torch.tensor([[1, 2, 3, 4]])
    before = verifier(ids).logits
    drafter = skip_layers(verifier, range(1, 3))
    own = {weight.data_ptr() for weight in verifier.parameters()}
    assert {weight.data_ptr() for weight in drafter.parameters()} < own
    assert not any(tensor.is_meta for tensor in (*drafter.parameters(), *drafter.buffers()))
    assert torch.equal(verifier(ids).logits, before)


def test_layers_that_cannot_be_skipped_are_refused(tmp_path: Path) -> None:
    model = tiny_model("llama", 60, 1, tmp_path / "llama", layers=6)
    for layers in (range(6), range(5, 7), [-1]):
        with pytest.raises(PairError, match="of 0 to 5"):
            skip_layers(model, layers)
    with pytest.raises(PairError, match="GPT2LMHeadModel"):
        skip_layers(tiny_model("gpt2", 60, 1, tmp_path / "gpt2"), [0])
