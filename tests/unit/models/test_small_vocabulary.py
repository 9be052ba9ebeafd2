"""The shipped drafter's small vocabulary: all of its verifier's tokens are read, those it knows are scored."""

from __future__ import annotations

import torch

from specviz.models.checkpoint import Checkpoint
from specviz.models.pair import ModelPair
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.resources import ASSETS


def test_the_shipped_drafter_loads_by_itself_and_speaks_its_verifiers_tokens(embedded: ModelPair) -> None:
    """It is quantised; in its pair it scores every token, unknown ones as impossible, by either runner."""
    directory = ASSETS / "drafter"
    alone = Checkpoint.read(directory).module(torch.float32)
    vocabulary = SmallVocabulary.load(directory)
    assert vocabulary is not None
    assert alone.config.vocab_size == len(vocabulary.kept)
    assert sum(file.stat().st_size for file in directory.iterdir()) < 20e6
    pair = embedded
    ids = torch.tensor([pair.tokenizer.encode("The capital of France is")])
    with torch.no_grad():
        own = alone(vocabulary.reads[ids]).logits
        wide = pair.drafter(ids).logits
        runner = pair.drafter_model.runner(49152)
        runner.admit([0], ids.shape[1])
        fused = runner.forward(ids, torch.arange(ids.shape[1])[None], visible=ids.shape[1])
    assert wide.shape[-1] == 49152
    assert torch.allclose(wide[..., vocabulary.kept], own, atol=1e-3)
    assert torch.equal(fused.isinf(), wide.isinf())
    assert torch.allclose(fused[..., vocabulary.kept], own, atol=0.02)
    assert int(wide.isinf().sum(-1).unique()) == 49152 - len(vocabulary.kept)
