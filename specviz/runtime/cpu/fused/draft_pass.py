"""Draws the draft tokens of some slots in one compiled function: each pass reads the tokens that were drawn after the previous pass.

No Python runs between passes: a pass's weights evict Python from the caches. Importing this module compiles the loops over a vocabulary.
"""

from __future__ import annotations

from numba import types

from specviz.core import loops
from specviz.runtime.cpu.fused import memory
from specviz.runtime.cpu.fused.memory import FLOAT_BYTES, double, jitable, set_word, word
from specviz.runtime.cpu.fused.tables import MOST_ROWS, drafting_at, pass_at

_lead = memory.caller(3, types.int64)
_sample, _spread = loops.sample, loops.spread


@jitable
def _draw(drafting, slot, step, logits):  # type: ignore[no-untyped-def]
    """Draw draft token `step` of a slot from its logits. The draft ends after a token whose confidence is below its threshold."""
    d = drafting_at(drafting)
    known, count, size, asks = d.known, d.known_count, d.size, d.thresholds != 0
    at = (slot * d.steps + step) * size * FLOAT_BYTES
    uniform = double(d.uniforms, slot * d.uniform_words + step)
    temperature = double(d.temperatures, slot)
    token, confidence = _sample(logits, known, count, d.q + at, size, temperature, uniform, asks)
    set_word(d.tokens, slot * d.token_words + step + 1, token)
    if d.logits != 0:
        _spread(logits, known, count, d.logits + at, size)
    if asks and confidence < double(d.thresholds, slot):
        set_word(d.lengths, slot, step + 1)


@jitable
def _pass(pool, drafting, threads, rows, step):  # type: ignore[no-untyped-def]
    """Run a pass over the first `rows` rows of its table, and draw draft token `step` of each row's slot. Returns the result of `lead`."""
    d = drafting_at(drafting)
    pass_ = pass_at(d.pass_)
    pass_.rows = rows
    found = _lead(d.lead, pool, d.pass_, threads)
    for row in range(rows):
        _draw(drafting, word(pass_.row_slots, row), step, pass_.logits + row * pass_.logits_bytes)
    return found


def draft(pool: int, drafting: int, threads: int) -> int:
    """Draw all draft tokens of a `DRAFTING`. Returns `WAITED` if `lead` returned it for any pass, else 0."""
    d = drafting_at(drafting)
    pass_ = pass_at(d.pass_)
    waited, step, rows = 0, 0, 1
    while rows > 0:
        rows = 0
        for slot in range(d.slots):
            if step >= word(d.lengths, slot):
                continue
            if rows == MOST_ROWS:
                waited |= _pass(pool, drafting, threads, rows, step)
                rows = 0
            token = word(d.tokens, slot * d.token_words + step)
            set_word(pass_.tokens, rows, token if d.reads == 0 else word(d.reads, token))
            set_word(pass_.row_slots, rows, slot)
            set_word(pass_.row_positions, rows, word(d.positions, slot) + step)
            rows += 1
        if rows > 0:
            waited |= _pass(pool, drafting, threads, rows, step)
        step += 1
    return waited
