"""What is to be drafted in one go, as a table of 64-bit words that compiled code reads: see `draft_pass`.

Knows whose passes draw what; knows no slot's owner and no text.
"""

from __future__ import annotations

from enum import auto

from specviz.runtime.cpu.fused.decoder_pass import Table


class Drafting(Table):
    """Whose passes they are: the table, `teamwork.lead`, what each token is read as (0 where that is itself), and the tokens that are
    scored (see `loops.sample`), of `SIZE` in all.

    And what is to be drawn for each of `SLOTS` slots: `STOPS` draft tokens. Draft token n stands at n + 1 of the
    slot's `LINE`; what stands before it is read, at n + its `POSITIONS`. The distribution is written to n of the slot's `STEPS` in
    `ROOM`, and, unless these are 0, the logits to `KEPT` and how sure the drafter is to `SURE`. `HEATS` are temperatures; tables
    of uniforms and lines have rows of so many words.

    And where slots stop before (see `Stopping`), if `NEEDED` is not 0: which of them are asked, `CHOOSES`, what all together need, `TOGETHER`, and how often draft tokens of so
    many `CLASSES` of confidence were `ACCEPTED`, of each of these. What is found: the draft tokens of each slot, in `STOPS`, and the
    passes run, `TURNS`.
    """

    PASS = auto()
    LEAD = auto()
    READS = auto()
    KNOWN = auto()
    KNOWN_COUNT = auto()
    SIZE = auto()
    SLOTS = auto()
    STOPS = auto()
    POSITIONS = auto()
    LINE = auto()
    LINE_WORDS = auto()
    ROOM = auto()
    STEPS = auto()
    KEPT = auto()
    SURE = auto()
    HEATS = auto()
    UNIFORMS = auto()
    UNIFORM_WORDS = auto()
    CHOOSES = auto()
    NEEDED = auto()
    CLASSES = auto()
    TOGETHER = auto()
    ACCEPTED = auto()
    TURNS = auto()
    END = auto()
