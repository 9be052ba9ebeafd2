"""The student of a distillation: its initial weights, its loss, and the rounding of its matrices."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from specviz.compat.transformers import cache_argument
from specviz.errors import RequestError
from specviz.models.checkpoint import BLOCK
from specviz.models.layer_skip import skip_layers


def check_layers(layers: tuple[int, ...], count: int) -> None:
    """Raise RequestError unless each of `layers` is one of `count` layers, counted from either end."""
    if absent := [layer for layer in layers if not -count <= layer < count]:
        raise RequestError(
            f"The verifier has no layer {absent[0]}: they are 0 to {count - 1}, or {-count} to -1 from the end."
        )


def make_student(verifier: Any, layers: tuple[int, ...], kept: Tensor) -> Any:
    """A trainable float32 copy of the verifier on the CPU, with its `layers` alone and the tokens `kept` [N] as its vocabulary.

    Raises:
        PairError: the verifier's layers cannot be found.
    """
    count = verifier.config.num_hidden_layers
    skipped = set(range(count)) - {layer % count for layer in layers}
    student = copy.deepcopy(skip_layers(verifier, skipped)).float().cpu()
    embedding = student.get_input_embeddings().weight.detach()
    if len(kept) < len(embedding):
        head = student.get_output_embeddings()
        student.set_input_embeddings(nn.Embedding.from_pretrained(embedding[kept], freeze=False))
        small = nn.Linear(embedding.shape[1], len(kept), bias=head.bias is not None)
        small.load_state_dict({name: value[kept] for name, value in head.state_dict().items()})
        student.set_output_embeddings(small)
        student.config.vocab_size = len(kept)
        student.tie_weights()
    return student.requires_grad_(True)


def hidden_states(model: Any, ids: Tensor, shared: int) -> Tensor:
    """The last hidden states [B, T − shared, D] of `ids` [B, T] from position `shared` on.

    The first `shared` ids must be equal in all rows: they are prefilled once, without gradients.
    """
    if not shared:
        return model.base_model(input_ids=ids).last_hidden_state
    name = cache_argument(type(model))
    with torch.no_grad():
        cache = getattr(model.base_model(input_ids=ids[:1, :shared], use_cache=True), name)
    cache.batch_repeat_interleave(len(ids))
    return model.base_model(input_ids=ids[:, shared:], **{name: cache}).last_hidden_state


def logits(model: Any, hidden: Tensor, rows: Tensor | None = None) -> Tensor:
    """A model's logits, float32 [n, N], from its last hidden states [n, D].

    `rows` [N] are the ids to score; None scores all.
    """
    head = model.get_output_embeddings()
    weight, bias = head.weight, head.bias
    if rows is not None:
        weight, bias = weight[rows], None if bias is None else bias[rows]
    scores = nn.functional.linear(hidden, weight, bias).float()
    if cap := getattr(model.config.get_text_config(), "final_logit_softcapping", None):
        scores = cap * torch.tanh(scores / cap)
    return scores


@torch.no_grad()
def loss_gradient(scores: Tensor, p: Tensor, sharpness: float) -> tuple[Tensor, Tensor]:
    """The gradient of the loss in the student's logits `scores` [n, N], and the acceptance rate of lossless decoding, a scalar.

    The loss is (1 − sharpness)·KL(p ‖ q) + sharpness·TV(q, p), the mean over n positions; `p` is [n, N]. The acceptance
    rate is 1 − TV (Leviathan et al. 2023, corollary 3.6), but KL learns faster while q is far from p. The closed form saves
    passes over [n, N] numbers, which take most of a step on a CPU.
    """
    q = scores.softmax(-1)
    low = torch.where(q < p, q, 0.0)  # where q is below p, a draft token is always accepted
    gradient = q * (1 - sharpness + sharpness * low.sum(-1, keepdim=True))
    gradient.sub_(low, alpha=sharpness).sub_(p, alpha=1 - sharpness).div_(len(p))
    return gradient, torch.minimum(q, p).sum(-1).mean()


def round_to_four_bits(weight: Tensor) -> Tensor:
    """`weight` [..., n·32] after a round trip through Q4_1: each block has 16 levels between its minimum and maximum."""
    blocks = weight.unflatten(-1, (-1, BLOCK))
    least, greatest = torch.aminmax(blocks, dim=-1, keepdim=True)
    scale = ((greatest - least) / 15).half().float()
    minimum = least.half().float()
    levels = ((blocks - minimum) / scale.clamp_min(1e-12)).round().clamp(0, 15)
    return (levels * scale + minimum).flatten(-2).to(weight.dtype)
