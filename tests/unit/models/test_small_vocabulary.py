"""The shipped drafter's small vocabulary: all of its verifier's tokens are read, those it knows are scored."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM

from specviz.models.pair import ModelPair
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.resources import ASSETS


def test_the_shipped_drafter_loads_by_itself_and_speaks_its_verifiers_tokens(embedded: ModelPair) -> None:
    """Plain `from_pretrained` reads it; in its pair it scores every token, unknown ones as impossible."""
    directory = ASSETS / "drafter"
    alone = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    vocabulary = SmallVocabulary.load(directory)
    assert vocabulary is not None
    assert alone.config.vocab_size == len(vocabulary.kept)
    assert sum(file.stat().st_size for file in directory.iterdir()) < 40e6
    ids = torch.tensor([embedded.tokenizer.encode("The capital of France is")])
    with torch.no_grad():
        own = alone(vocabulary.reads[ids]).logits
        wide = embedded.drafter(ids).logits
    assert wide.shape[-1] == 49152
    assert torch.allclose(wide[..., vocabulary.kept], own, atol=1e-3)
    assert int(wide.isinf().sum(-1).unique()) == 49152 - len(vocabulary.kept)
