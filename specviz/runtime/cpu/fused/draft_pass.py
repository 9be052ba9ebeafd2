"""Several draft tokens of some slots, one pass each, as one compiled function: every pass reads what was drawn after the one before.

Between the passes no Python runs: it would find its caches full of weights. What is asked for stands in a `Drafting`. Importing this
module compiles two loops over a vocabulary. Knows passes by address; knows no slot's owner and no text.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import register_jitable

from specviz.core import loops
from specviz.runtime.cpu.fused import memory
from specviz.runtime.cpu.fused.decoder_pass import MOST_ROWS, Pass
from specviz.runtime.cpu.fused.drafting import Drafting
from specviz.runtime.cpu.fused.memory import double, number, set_number, set_word, word
from specviz.runtime.cpu.fused.teamwork import WAITED

_FLOAT_BYTES = 4
_lead = memory.caller(3, types.int64)
_sample, _spread = loops.sample, loops.spread


@register_jitable
def _draw(drafting: int, slot: int, step: int, logits: int) -> None:
    """One draft token of a slot, from its logits."""
    size, place = word(drafting, Drafting.SIZE), slot * word(drafting, Drafting.STEPS) + step
    known, count = word(drafting, Drafting.KNOWN), word(drafting, Drafting.KNOWN_COUNT)
    room, sure = word(drafting, Drafting.ROOM) + place * size * _FLOAT_BYTES, word(drafting, Drafting.SURE)
    uniform = double(word(drafting, Drafting.UNIFORMS), slot * word(drafting, Drafting.UNIFORM_WORDS) + step)
    heat = double(word(drafting, Drafting.HEATS), slot)
    token, confidence = _sample(logits, known, count, room, size, heat, uniform, sure != 0)
    set_word(word(drafting, Drafting.LINE), slot * word(drafting, Drafting.LINE_WORDS) + step + 1, token)
    if sure != 0:
        set_number(sure, place, confidence)
    if word(drafting, Drafting.KEPT) != 0:
        kept = word(drafting, Drafting.KEPT) + place * size * _FLOAT_BYTES
        _spread(logits, known, count, kept, size)


@register_jitable
def _pass(team: int, drafting: int, threads: int, rows: int, step: int) -> int:
    """Run a pass over rows whose slots stand in its table, and draw the draft token of that step of each."""
    pass_ = word(drafting, Drafting.PASS)
    set_word(pass_, Pass.ROWS, rows)
    found = _lead(word(drafting, Drafting.LEAD), team, pass_, threads)
    for row in range(rows):
        slot = word(word(pass_, Pass.ROW_SLOTS), row)
        logits = word(pass_, Pass.LOGITS) + row * word(pass_, Pass.LOGITS_BYTES)
        _draw(drafting, slot, step, logits)
    return found


@register_jitable
def _stop(drafting: int, drafted: int) -> None:
    """Let slots stop at so many draft tokens where one more does not pay, each by itself or the pass for all of them."""
    classes, steps = word(drafting, Drafting.CLASSES), word(drafting, Drafting.STEPS)
    stops, asked = word(drafting, Drafting.STOPS), 0
    surplus, needed = 0.0, double(word(drafting, Drafting.NEEDED), drafted - 1)
    must = False
    for slot in range(word(drafting, Drafting.SLOTS)):
        if word(word(drafting, Drafting.CHOOSES), slot) == 0:
            must = must or word(stops, slot) > drafted
            continue
        if word(stops, slot) > drafted:
            survival = 1.0
            for step in range(drafted):
                sure = number(word(drafting, Drafting.SURE), slot * steps + step)
                own = min(int(sure * np.float32(classes)), classes - 1) if sure > 0 else 0
                survival *= double(word(drafting, Drafting.ACCEPTED), asked * classes + own)
            if survival > needed:
                surplus += survival - needed
            else:
                set_word(stops, slot, drafted)
        asked += 1
    if must or surplus > double(word(drafting, Drafting.TOGETHER), 0):
        return
    for slot in range(word(drafting, Drafting.SLOTS)):
        if word(word(drafting, Drafting.CHOOSES), slot) != 0 and word(stops, slot) > drafted:
            set_word(stops, slot, drafted)


def draft(team: int, drafting: int, threads: int) -> int:
    """Draw all that is asked for. Returns what `lead` does of the last pass, `WAITED` if any was."""
    pass_, line, reads = (
        word(drafting, Drafting.PASS),
        word(drafting, Drafting.LINE),
        word(drafting, Drafting.READS),
    )
    tokens, slots, positions = (
        word(pass_, Pass.TOKENS),
        word(pass_, Pass.ROW_SLOTS),
        word(pass_, Pass.ROW_POSITIONS),
    )
    found, waited, step = 0, 0, 0
    while True:
        rows = 0
        for slot in range(word(drafting, Drafting.SLOTS)):
            if step >= word(word(drafting, Drafting.STOPS), slot):
                continue
            if rows == MOST_ROWS:
                found = _pass(team, drafting, threads, rows, step)
                waited, rows = waited + (found == WAITED), 0
            token = word(line, slot * word(drafting, Drafting.LINE_WORDS) + step)
            set_word(tokens, rows, token if reads == 0 else word(reads, token))
            set_word(slots, rows, slot)
            set_word(positions, rows, word(word(drafting, Drafting.POSITIONS), slot) + step)
            rows += 1
        if rows == 0:
            break
        found = _pass(team, drafting, threads, rows, step)
        waited += found == WAITED
        step += 1
        if word(drafting, Drafting.NEEDED) != 0:
            _stop(drafting, step)
    set_word(drafting, Drafting.TURNS, step)
    return WAITED if waited > 0 else found
