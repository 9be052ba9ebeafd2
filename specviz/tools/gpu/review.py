"""What reading the code without a GPU made us expect, measured first: five measurements, each beside what was expected.

Each is taken with kernels of ours and with transformers' own passes. Knows passes and rounds; what they come to, a reader judges.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specviz.core.sampling import distribution, draw
from specviz.engine.engine import Engine
from specviz.models.modules import tune
from specviz.models.pair import ModelPair
from specviz.progress import silent
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.tools.bench.contender import timed
from specviz.tools.bench.memory import bandwidth
from specviz.tools.bench.shapes import find_temperature, tuned_twin
from specviz.tools.gpu.job import Job, environment
from specviz.tools.gpu.passes import Passes
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import Rows

_TOKENS, _DRAFT_LENGTH, _ACCEPTANCE = 96, 4, 0.7
_WIDTHS = (1, 2, 4, 8, 16)
_VOCABULARY = 151_936

EXPECTED = {
    "bandwidth": "TB/s: H100 3.0, H200 4.3",
    "replays": "ms: drafter 0.5 (floor 0.23), verifier 3.8 (floor 3.29), 16 tokens within 5 %",
    "replays, torch": "ms: drafter 1.8–2.3, verifier 5.0–5.6, 16 tokens within 5 %",
    "growth": "captured again after the buffers grew: about 0.1 s a new shape",
    "bits": "0 everywhere",
    "bits, torch": "logits of one token 0.125–0.25 apart at 2, 4, 8, 16 tokens, and beside three others at 1, 4",
    "texts": "all 4",
    "texts, torch": "of 4, equal to those of K = 1: few, they part within dozens of tokens",
    "a round": "ms: 7.6",
    "a round, torch": "ms: 15.5 = 4 × 2.0 + 5.3 + 0.6 + 1.5 idle",
    "context": "nearly level",
    "context, torch": "ms at 256, 1024, 4096: verifier 5.3, 5.7, 7.3; drafter 2.0, 2.3, 3.2",
    "prefill": "ms of 16, 128, 512 tokens: bound by launching, then by the products",
    "draws": "ms: one row 0.02, two rows 0.28; top-p 0.1 for each distribution",
}
"""What was expected of Qwen2.5 0.5B → 7B in bfloat16 on an H200, by step; with "torch", of transformers' own passes."""


def measure(job: Job, record: Record) -> None:
    """Take the measurements that are missing."""
    record.step("bandwidth", lambda: {"terabytes_a_second": bandwidth(job.device) / 1e12})
    record.step("draws", lambda: _draws(job))
    plain: list[ModelPair] = []

    def pair() -> ModelPair:
        if not plain:
            plain.append(job.of_shapes(job.shapes[0])[0])
        return tuned_twin(plain[0], tune)

    for suffix, kernels in (("", True), (", torch", False)):
        with environment(kernels=kernels):
            record.step(f"replays{suffix}", lambda: _replays(pair()))
            record.step(f"a round{suffix}", lambda: _round(job, pair()))
            record.step(f"bits{suffix}", lambda: _bits(pair()))
            record.step(f"texts{suffix}", lambda: _texts(job, pair()))
            record.step(f"context{suffix}", lambda: _context(job, pair()))
            if kernels:
                record.step("growth", lambda: _growth(pair()))
                record.step("prefill", lambda: _prefill(job, pair()))


def table(steps: dict[str, Found]) -> Rows:
    """What was measured beside what was expected."""
    rows: Rows = [("measurement", "found", "expected")]
    rows += [(name, _words(steps[name]), expected) for name, expected in EXPECTED.items() if name in steps]
    return rows


def _words(found: Found) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in found.items() if name != "seconds")


def _number(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(_number, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _passes(pair: ModelPair, name: str, length: int, rows: int = 1) -> Passes:
    model = pair.drafter_model if name == "drafter" else pair.verifier_model
    return Passes(model, pair.vocabulary_size, length, rows)


def _milliseconds(pair: ModelPair, name: str, width: int, position: int) -> float:
    passes = _passes(pair, name, position + width)
    try:
        return 1000 * passes.seconds(width, position)
    finally:
        passes.close()


def _replays(pair: ModelPair) -> Found:
    """Passes over one token, captured and kernel by kernel, and the bytes of weights that one reads."""
    found: Found = {}
    for name, model in (("drafter", pair.drafter_model), ("verifier", pair.verifier_model)):
        with environment(graphs=False):
            found[f"{name} plain"] = _milliseconds(pair, name, 1, 200)
        found[name] = _milliseconds(pair, name, 1, 200)
        found[f"{name} gigabytes"] = model.weight_bytes / 1e9
    found["verifier 16"] = _milliseconds(pair, "verifier", 16, 200)
    return found


def _growth(pair: ModelPair) -> Found:
    """Passes before and after buffers have grown to 1,500 positions, and whether they are captured again."""
    before = _passes(pair, "verifier", 400)
    found: Found = {"before": 1000 * before.seconds(1, 300)}
    before.runner.admit([before], 1500)
    before.rows = 2
    ids = before.ids(1)
    first = [timed(before.device, lambda: before.logits(ids, 1400))[1] for _ in range(3)]
    found |= {"first three": [1000 * each for each in first], "after": 1000 * before.seconds(1, 1400)}
    held = before.runner._held
    found["captures"] = len(held.graphs) if held else 0
    before.close()
    return found


def _bits(pair: ModelPair) -> Found:
    """How far the logits of one token lie apart, read alone and with others behind it or beside it; 0 is: equal bits."""
    found: Found = {}
    for name in ("drafter", "verifier"):
        seen = []
        for rows, widths in ((1, _WIDTHS), (4, (1, 4))):
            passes = _passes(pair, name, 300, rows)
            passes.read(passes.ids(250))
            for width in widths:
                ids = passes.ids(max(_WIDTHS), seed=1)[:, :width]
                seen.append(passes.captured(ids, 250)[0, 0].float())
            passes.close()
        found[name] = [_apart(seen[0], each) for each in seen[1:]]
    return found


def _texts(job: Job, pair: ModelPair) -> Found:
    """Of four texts with K = 1 in one batch, how many are the same with other K, and alone (laws 2 and 3)."""
    engine = Engine(pair)
    requests = [
        Request(
            token_ids=list(range(5 + seed, 40 + seed)),
            method="speed",
            seed=seed,
            draft_length=1,
            max_new_tokens=8 if job.tiny else _TOKENS,
        )
        for seed in range(4)
    ]

    def same(runs: list[Run]) -> int:
        return sum(run.token_ids == each.token_ids for run, each in zip(runs, wanted, strict=True))

    wanted = engine.generate(requests)
    found: Found = {
        f"K = {k}": same(engine.generate([replace(each, draft_length=k) for each in requests]))
        for k in (2, 5, 8)
    }
    return found | {"alone": same([engine.generate(each)[0] for each in requests])}


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def _round(job: Job, pair: ModelPair) -> Found:
    """Rounds of lossless decoding at K = 4, where about 0.7 is accepted: medians, and where the time goes."""
    tokens = 12 if job.tiny else _TOKENS
    engine, heat = Engine(pair), find_temperature(pair, _ACCEPTANCE, silent)
    asked = Request(token_ids=list(range(5, 40)), max_new_tokens=tokens, seed=1, temperature=heat)
    alone, drafting = (
        replace(asked, method=method, draft_length=_DRAFT_LENGTH) for method in ("verifier_only", "speed")
    )
    for request in (alone, drafting) * 2:  # the second time with captured passes
        engine.generate(request)
    found: Found = {}
    begin = time.perf_counter()
    engine.generate(alone)
    found["alone, tokens/s"] = tokens / (time.perf_counter() - begin)
    begin = time.perf_counter()
    [run] = engine.generate(drafting)
    found["drafting, tokens/s"] = tokens / (time.perf_counter() - begin)
    parts = {"drafter": "drafter_seconds", "verifier": "verifier_seconds", "whole": "seconds"}
    for name, field in parts.items():
        found[name] = 1000 * statistics.median(getattr(each, field) for each in run.rounds)
    return found | {"tokens a round": tokens / len(run.rounds), "accepted": run.acceptance_rate}


def _context(job: Job, pair: ModelPair) -> Found:
    """Passes at growing positions."""
    positions = (64, 200) if job.tiny else (256, 1024, 4096)
    return {
        name: [_milliseconds(pair, name, 1, position - 1) for position in positions]
        for name in ("verifier", "drafter")
    }


def _prefill(job: Job, pair: ModelPair) -> Found:
    """Reading prompts of some lengths."""
    found: Found = {}
    for name in ("verifier", "drafter"):
        times = []
        for length in (8, 16) if job.tiny else (16, 128, 512):
            passes = _passes(pair, name, length)
            ids = passes.ids(length)
            read = partial(passes.read, ids)
            tries = [timed(job.device, read)[1] for _ in range(5)]
            times.append(1000 * statistics.median(tries[2:]))
            passes.close()
        found[name] = times
    return found


@torch.inference_mode()
def _draws(job: Job) -> Found:
    """Milliseconds of drawing from distributions over a large vocabulary, and of truncating them by top-p."""
    size, found = 4096 if job.tiny else _VOCABULARY, Found()
    for rows in (1, 2, 5):
        generator = torch.Generator().manual_seed(rows)
        logits = torch.randn(rows, 1, size, generator=generator).to(job.device)
        uniforms = torch.full((rows, 1), 0.6, dtype=torch.float64, device=job.device)
        q = distribution(logits)
        for name, work in (
            (f"draw {rows}", lambda q=q, u=uniforms: draw(q, u)),
            (f"top-p {rows}", lambda logits=logits: distribution(logits, 1.0, 0, 0.9)),
        ):
            times = [timed(job.device, work)[1] for _ in range(12)]
            found[name] = 1000 * statistics.median(times[3:])
    return found
