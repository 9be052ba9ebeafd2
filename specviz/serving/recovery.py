"""Recovery from failed steps, so that as few sequences as possible fail.

If memory runs out and no memory can be freed, the longest sequence fails. After any other error, each sequence repeats the step in a
batch of its own.
"""

from __future__ import annotations

import logging

from specviz.engine.batch import Batch
from specviz.engine.engine import out_of_memory
from specviz.engine.record import Outcome
from specviz.errors import EngineError, is_out_of_memory

log = logging.getLogger(__name__)


def step_or_recover(batch: Batch) -> list[Outcome]:
    """One step of a batch. A sequence that fails has an outcome with an error.

    If memory runs out and cannot be freed, the only outcome is an error for the longest sequence. Remove it before the next step.
    """
    try:
        return batch.step()
    except Exception as error:
        if is_out_of_memory(error):
            return [_fail_longest(batch)]
        log.error("a step failed; its sequences go on one by one", exc_info=error)
        return _step_alone(batch)


def first_step(batch: Batch) -> list[Outcome]:
    """A short step of a batch before it joins another. Returns [] if it fails: no sequence has changed, and the joint step tries again."""
    try:
        return batch.step(short=True)
    except Exception as error:
        log.error("a first step failed; the joint step tries again", exc_info=error)
        return []


def engine_error(error: Exception, count: int, longest: int) -> EngineError:
    """The error for the caller of `count` sequences of up to `longest` tokens. A new exception: the traceback of `error` holds tensors."""
    if isinstance(error, EngineError):
        return EngineError(str(error))
    if is_out_of_memory(error):
        return out_of_memory(count, longest)
    log.error("a request failed", exc_info=error)
    return EngineError(
        "A model failed on this request and the run has ended; others are not affected. Try other settings."
    )


def _step_alone(batch: Batch) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for alone in batch.split():
        [sequence], longest = alone.sequences, alone.longest
        try:
            outcomes += alone.step()
            batch.take(alone)
        except Exception as error:
            outcomes.append(Outcome(sequence, [], error=engine_error(error, 1, longest)))
    return outcomes


def _fail_longest(batch: Batch) -> Outcome:
    longest = max(batch.sequences, key=lambda sequence: (sequence.length_limit, sequence.index))
    return Outcome(longest, [], error=out_of_memory(len(batch.sequences), batch.longest))
