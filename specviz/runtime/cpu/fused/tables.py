"""The tables of a pass: records that Python fills in and compiled code reads. Fields are int64, addresses or counts, unless they say otherwise."""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.memory import record_at

MOST_ROWS = 64
"""Rows of one pass; more are read in several."""


def _integers(*names: str) -> list[tuple[str, str]]:
    return [(name, "i8") for name in names]


MATRIX = np.dtype(
    _integers("multiply", "pack", "weights", "start", "groups", "blocks", "row_bytes", "block_bytes")
)
"""A matrix: its functions, its weights, the vector that outputs start from (0: they are added to what is there), the numbers of groups of
16 outputs and of blocks of 32 inputs, and the bytes of a row's block and of a block of a panel of packed inputs.
"""

MATRICES = ("inputs", "output", "gate_and_up", "down")
LAYER = np.dtype(
    [
        *_integers("attention_norm", "mlp_norm", "query_norm", "key_norm"),
        *((name, MATRIX) for name in MATRICES),
    ]
)
"""A layer: weights of its norms (0 where it has none), and its matrices."""

SLOT = np.dtype(_integers("keys", "values", "length"))
"""A slot of the KV cache: where its keys and values are, and for how many positions."""

PASS = np.dtype(
    [
        *_integers("layers", "layer_table", "heads", "key_heads", "head_size", "hidden", "inner"),
        *_integers("attend", "embed", "embedding", "norm", "cosines", "sines"),
        *_integers("states", "projected", "mixed", "gated", "activated", "scratch", "scratch_bytes"),
        *_integers("slots", "rows", "tokens", "row_slots", "row_positions", "logits", "logits_bytes"),
        ("head", MATRIX),
        ("epsilon", "f4"),
    ]
)
"""A pass: the decoder's sizes, functions and weights; buffers [rows, size] of float32; and what is to be read.

`slots` is a table of `SLOT`, `layer_table` of `LAYER`. Each thread has `scratch_bytes` of `scratch`. Row r is token `tokens[r]` of slot
`row_slots[r]` at `row_positions[r]`; its logits go to `logits` + r · `logits_bytes` unless `logits` is 0.
"""

pass_at, layer_at, matrix_at, slot_at = map(record_at, (PASS, LAYER, MATRIX, SLOT))

DRAFTING = np.dtype(
    _integers(
        *("pass_", "lead", "reads", "known", "known_count", "size"),
        *("slots", "lengths", "positions", "tokens", "token_words", "q", "steps", "logits"),
        *("temperatures", "thresholds", "uniforms", "uniform_words"),
    )
)
"""The draft tokens of some slots, for `draft_pass`: the pass, `workers.lead`, what each token is read as (0: itself), and the
`known_count` tokens that are scored (0: all) of `size`.

Slot s gets `lengths[s]` draft tokens: draft token n is at n + 1 in its row of `tokens`; the token before it is read at position
n + `positions[s]`. Its distribution goes to row n of the slot's `steps` rows of `q`, its logits likewise unless `logits` is 0. Unless
`thresholds` is 0, a draft token whose confidence is below `thresholds[s]` is the slot's last, and n + 1 is written to `lengths[s]`.
"""

drafting_at = record_at(DRAFTING)
