"""Rounds beside their floor: the bytes that a round must read over the bandwidth measured, with 1 to 64 sequences at once.

Knows batches and a clock; knows no text.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from specviz.engine.batch import Batch
from specviz.engine.sequence import Sequence
from specviz.models.pair import ModelPair
from specviz.models.tokenizer import TokenLabels
from specviz.schema.settings import Request
from specviz.tools.bench.contender import timed
from specviz.tools.bench.memory import bandwidth
from specviz.tools.gpu.job import Job, environment
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import Rows

_ROWS, _TINY_ROWS = (1, 2, 4, 8, 16, 32, 64), (1, 2)
_DRAFT_LENGTH, _PROMPT = 4, 128


def measure(job: Job, record: Record) -> None:
    """Time the rounds that have not been timed."""
    speed = record.step("bandwidth", lambda: {"bytes_a_second": bandwidth(job.device)})
    if speed is None or "error" in speed:
        return
    with environment():
        for name in ("embedded", " → ".join(job.shapes[0])):
            pair = cache(partial(_pair, job, name))  # loaded when first needed, and gone after its last row
            for rows in _TINY_ROWS if job.tiny else _ROWS:
                record.step(f"{name}, {rows}", partial(_rounds, job, pair, rows, speed["bytes_a_second"]))


def _pair(job: Job, name: str) -> ModelPair:
    if name == "embedded":
        return job.embedded(job.device, str(job.dtype).removeprefix("torch."))
    return job.of_shapes(job.shapes[0])[1]


def table(steps: dict[str, Found]) -> Rows:
    """A row for each number of sequences."""
    rows: Rows = [("pair, sequences", "a round, ms", "floor, ms", "÷ floor", "tokens/s", "tokens a round")]
    for name, found in steps.items():
        if "error" in found:
            rows.append((name, found["error"], *[""] * 4))
        elif "floor" in found:
            ratio = found["round"] / found["floor"]
            figures = (
                found["round"],
                found["floor"],
                ratio,
                found["tokens_a_second"],
                found["tokens_a_round"],
            )
            rows.append((name, *(f"{each:.3g}" for each in figures)))
    return rows


def _rounds(job: Job, load: Callable[[], ModelPair], rows: int, bytes_a_second: float) -> Found:
    """Median milliseconds of a round of lossless decoding at K = 4 over `rows` sequences, and its floor."""
    tokens, prompt = (24, 16) if job.tiny else (160, _PROMPT)
    pair = replace(load(), eos_token_ids=frozenset())
    batch = Batch(pair)
    labels = TokenLabels(pair.tokenizer)
    requests = [
        Request(
            token_ids=[30 + (seed + i) % 200 for i in range(prompt)],
            method="speed",
            draft_length=_DRAFT_LENGTH,
            seed=seed,
            max_new_tokens=tokens,
        )
        for seed in range(rows)
    ]
    for _ in batch.read([Sequence(i, each, pair, labels, records=False) for i, each in enumerate(requests)]):
        pass
    sequences, times, written = list(batch.sequences), list[float](), list[int]()
    while len(batch.sequences) == rows:
        before = sum(len(each.ids) for each in sequences)
        times.append(timed(job.device, batch.step)[1])
        written.append(sum(len(each.ids) for each in sequences) - before)
    batch.clear()
    settled = len(times) // 2  # what is captured is captured by then
    seconds, made = statistics.median(times[settled:]), statistics.mean(written[settled:])
    positions = rows * (prompt + tokens // 2)
    drafter, verifier = (
        model.weight_bytes + positions * runner.position_bytes
        for model, runner in zip(
            (pair.drafter_model, pair.verifier_model), pair.runners(apart=True), strict=True
        )
    )
    floor = (_DRAFT_LENGTH * drafter + verifier) / bytes_a_second
    return {
        "round": 1000 * seconds,
        "floor": 1000 * floor,
        "tokens_a_second": made / seconds,
        "tokens_a_round": made / rows,
    }
