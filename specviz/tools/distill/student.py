"""The student of a distillation: its initial weights, which are the verifier's, and its loss.

Knows causal language models; knows no files, no texts and no clock.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.errors import RequestError
from specviz.models.layer_skip import skip_layers
from specviz.tools.distill.settings import Shape


def make_student(verifier: Any, shape: Shape, kept: Tensor) -> Any:
    """A float32 student of `verifier` on the CPU that shares no weights with it; its ids are the tokens `kept` [N].

    Raises:
        RequestError: the shape names a layer that the verifier does not have.
        PairError: the verifier's layers cannot be found.
    """
    embedding = verifier.get_input_embeddings().weight.detach().float().cpu()
    rows = embedding[kept]
    if shape.width:
        return _narrow(verifier, shape, rows)
    count = verifier.config.num_hidden_layers
    if absent := [layer for layer in shape.layers if not -count <= layer < count]:
        raise RequestError(
            f"The verifier has no layer {absent[0]}: they are 0 to {count - 1}, or {-count} to -1 from the end."
        )
    skipped = set(range(count)) - {layer % count for layer in shape.layers}
    student = copy.deepcopy(skip_layers(verifier, skipped)).float().cpu()
    if len(kept) < len(embedding):
        head = student.get_output_embeddings()
        student.set_input_embeddings(nn.Embedding.from_pretrained(rows.clone(), freeze=False))
        small = nn.Linear(rows.shape[1], len(rows), bias=head.bias is not None)
        small.load_state_dict({name: value[kept] for name, value in head.state_dict().items()})
        student.set_output_embeddings(small)
        student.config.vocab_size = len(rows)
        student.tie_weights()
    return student.requires_grad_(True)


def _narrow(verifier: Any, shape: Shape, rows: Tensor) -> Any:
    source = verifier.config.get_text_config()
    config = LlamaConfig(
        vocab_size=len(rows),
        hidden_size=shape.width,
        num_hidden_layers=shape.depth,
        num_attention_heads=max(1, shape.width // 64),
        num_key_value_heads=max(1, shape.width // 128),
        head_dim=64,
        intermediate_size=shape.width * 4,
        max_position_embeddings=getattr(source, "max_position_embeddings", 2048),
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=source.bos_token_id,
        eos_token_id=source.eos_token_id,
        pad_token_id=source.pad_token_id,
    )
    student: Any = LlamaForCausalLM(config)
    centred = rows - rows.mean(0)
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(-1)
    reduced = centred @ directions[:, : shape.width]
    with torch.no_grad():  # if wider than its verifier, a student keeps noise in the other columns
        student.get_input_embeddings().weight[:, : reduced.shape[1]] = reduced * (0.05 / reduced.std())
    return student


def logits(model: Any, hidden: Tensor, rows: Tensor | None = None) -> Tensor:
    """What a model's output layer makes of its last hidden states [n, D]: float32 [n, N].

    `rows` [N] are the ids to score, by default all.
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
    """The loss's gradient in the student's logits `scores`, and the rate at which lossless decoding accepts.

    The loss is (1 − sharpness)·KL(p ‖ q) + sharpness·TV(q, p), a mean over n positions; all are [n, N], the rate is a
    scalar. The rate is one minus TV (Leviathan et al. 2023, corollary 3.6); KL teaches faster while the two are far
    apart. Taken in closed form, because passes over [n, N] numbers are what a step on a CPU waits for.
    """
    q = scores.softmax(-1)
    low = torch.where(q < p, q, 0.0)  # where q is too small, its share is accepted whole
    gradient = q * (1 - sharpness + sharpness * low.sum(-1, keepdim=True))
    gradient.sub_(low, alpha=sharpness).sub_(p, alpha=1 - sharpness).div_(len(p))
    return gradient, torch.minimum(q, p).sum(-1).mean()
