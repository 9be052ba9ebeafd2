"""The fused pass in plain numpy, for one sequence: the specification that the tests compare it with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specviz.runtime.cpu.fused.decoder import DecoderShape, LayerWeights, Weights
from specviz.runtime.cpu.fused.products import BLOCK, Format, Precision

Array = np.ndarray


def logits(
    shape: DecoderShape,
    layers: Sequence[LayerWeights],
    embedding: Weights,
    final_norm: Array,
    head: Weights | None,
    precision: Precision,
    tokens: Array,
) -> Array:
    """Logits [n, V] of `tokens` [n]; the first five arguments are those of `Decoder`."""

    def norm(x: Array, weight: Array | None) -> Array:
        return x if weight is None else x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.epsilon) * weight

    def rotate(x: Array) -> Array:
        """Rotary positions of [n, heads, size]: adjacent pairs rotate."""
        angles = np.arange(len(x))[:, None, None] * shape.frequencies
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles) * shape.rotary_scale
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    def attention(queries: Array, keys: Array, values: Array) -> Array:
        """Causal attention of [n, heads, size]; several query heads share a key-value head."""
        keys, values = (np.repeat(each, shape.heads // shape.key_heads, 1) for each in (keys, values))
        scores = np.einsum("ihd,jhd->hij", queries, keys) / np.sqrt(shape.head_size)
        weights = np.exp(np.where(np.tri(len(queries)), scores, -np.inf))
        return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), values)

    states = _numbers(embedding)[tokens]
    for layer in layers:
        heads = product(norm(states, layer.attention_norm), layer.inputs, precision)
        heads = heads if layer.input_bias is None else heads + layer.input_bias
        heads = heads.reshape(len(tokens), -1, shape.head_size)
        queries, keys, values = np.split(heads, [shape.heads, shape.heads + shape.key_heads], 1)
        queries, keys = rotate(norm(queries, layer.query_norm)), rotate(norm(keys, layer.key_norm))
        mixed = attention(queries, keys, values).reshape(len(tokens), -1)
        states = states + product(mixed, layer.output, precision)
        gate, up = np.split(product(norm(states, layer.mlp_norm), layer.gate_and_up, precision), 2, 1)
        states = states + product(gate / (1 + np.exp(-gate)) * up, layer.down, precision)
    return product(norm(states, final_norm), head or embedding, precision)


def product(x: Array, weights: Weights, precision: Precision) -> Array:
    """x [n, inputs] times the transpose of weights [outputs, inputs]; for quantised weights, x is rounded to integers, by blocks of 32."""
    if not weights.format.is_quantised:
        return x @ _numbers(weights).T
    blocks = x.reshape(len(x), -1, BLOCK)
    unit = np.abs(blocks).max(-1, keepdims=True) / precision.value + 1e-30
    return (np.rint(blocks / unit) * unit).reshape(x.shape) @ _numbers(weights).T


def _numbers(weights: Weights) -> Array:
    """Weights [outputs, inputs] in float64; quantised ones are dequantised from GGUF blocks of 32."""
    rows, kind = weights.rows, weights.format
    if kind is Format.Q8_0:
        scales, levels = np.split(rows.reshape(len(rows), -1, 34), [2], -1)
        return (levels.view(np.int8) * scales.copy().view(np.float16).astype(float)).reshape(len(rows), -1)
    if kind is Format.Q4_1:
        sides, nibbles = np.split(rows.reshape(len(rows), -1, 20), [4], -1)
        scales, minima = np.split(sides.copy().view(np.float16).astype(float), 2, -1)
        levels = np.concatenate([nibbles & 15, nibbles >> 4], -1)
        return (levels * scales + minima).reshape(len(rows), -1)
    if kind is Format.BF16:
        return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(float)
    return rows.view(np.float16 if kind is Format.F16 else np.float32).astype(float)
