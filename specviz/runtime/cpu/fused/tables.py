"""The tables of a pass: records that Python fills in and compiled code reads. Fields are int64 addresses or counts, except `epsilon`."""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.memory import record_at

MOST_ROWS = 64
"""Most rows of a pass; more rows are read in several passes."""


def _integers(*names: str) -> list[tuple[str, str]]:
    return [(name, "i8") for name in names]


MATRIX = np.dtype(
    _integers("multiply", "pack", "weights", "start", "groups", "blocks", "row_bytes", "block_bytes")
)
"""A matrix. `multiply`, `pack`: functions. `start`: the initial values of outputs; 0 if the product is added to existing outputs.
`groups`: groups of 16 outputs. `blocks`: blocks of 32 inputs. `row_bytes`, `block_bytes`: see `products.Kernel`.
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
"""A slot of the KV cache: addresses of its keys and values, and its number of positions."""

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
"""A pass: the decoder's sizes, functions and weights; float32 buffers [rows, size]; and the pass's inputs.

`slots` is a table of `SLOT`, `layer_table` of `LAYER`. Each thread has `scratch_bytes` of `scratch`. Row r is token `tokens[r]` of slot
`row_slots[r]` at position `row_positions[r]`; its logits go to `logits` + r · `logits_bytes` unless `logits` is 0.
"""

pass_at, layer_at, matrix_at, slot_at = map(record_at, (PASS, LAYER, MATRIX, SLOT))

DRAFTING = np.dtype(
    _integers(
        *("pass_", "lead", "reads", "known", "known_count", "size"),
        *("slots", "lengths", "positions", "tokens", "token_words", "q", "steps", "logits"),
        *("temperatures", "thresholds", "uniforms", "uniform_words"),
    )
)
"""Inputs and outputs of `draft_pass`. `pass_`: a `PASS`. `lead`: `workers.lead`. `reads`: the decoder's id for each token; 0 if the ids are
the same. `known`: the `known_count` tokens that have logits, of a vocabulary of `size`; `known_count` is 0 if all have.

Slot s gets `lengths[s]` draft tokens. Draft token n is written to index n + 1 of the slot's row of `tokens`; the pass that gives its logits
reads the token at index n, at position `positions[s]` + n. `q` and `logits` have `steps` rows for each slot: row n gets the
distribution and the logits of draft token n. No logits are written if `logits` is 0. Unless `thresholds` is 0, a draft token whose
confidence is below `thresholds[s]` ends the slot's draft, and n + 1 is written to `lengths[s]`.
"""

drafting_at = record_at(DRAFTING)
