"""What the torch runner serves is said before weights are read, and by a probe where a config does not tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import BartConfig, FalconConfig, PretrainedConfig, Qwen3Config, RwkvConfig

from specviz.errors import PairError
from specviz.models.servable import check_config
from tests.unit.models.helpers import refusal, spec_of


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (RwkvConfig(), "keep a state"),
        (BartConfig(), "have an encoder"),
        (FalconConfig(alibi=True), "ALiBi"),
        (Qwen3Config(num_hidden_layers=1, layer_types=["chunked_attention"]), "chunked_attention"),
    ],
)
def test_a_config_is_refused_by_its_traits(config: PretrainedConfig, reason: str) -> None:
    with pytest.raises(PairError, match=f"of the type {config.model_type} .*{reason}.*SpecViz serves"):
        check_config(config)
    check_config(Qwen3Config())


def test_a_folder_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    RwkvConfig().save_pretrained(tmp_path)  # and no weights
    assert "of the type rwkv keep a state" in refusal(spec_of(tmp_path, tmp_path))
