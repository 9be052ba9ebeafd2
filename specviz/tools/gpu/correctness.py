"""Are the numbers right on a GPU? Logits against float64 on the CPU, captured passes against plain ones, and texts in float64.

A half-precision pass cannot have float64's numbers; it is right where it is about as near to them as transformers' own pass
in the same dtype. Knows passes and models; measures no time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from specviz.core.methods import METHODS
from specviz.engine.engine import Engine
from specviz.runtime.runner import Model
from specviz.schema.settings import Request
from specviz.tools.gpu.job import Job, Shapes, environment
from specviz.tools.gpu.passes import Passes
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import NONE, Rows

_PROMPT, _WIDTHS = 40, (1, 4)
_TIMES = 2.0
"""How many times as far from float64 as transformers' own pass a pass may be."""
_FLOOR = 1e-5
"""A distance, as a share of the logits' spread, that is never too far."""


def measure(job: Job, record: Record) -> None:
    """Compare what has not been compared."""
    with environment():
        record.step("embedded: texts in float64", lambda: _texts(job))
        record.step("embedded: verifier", lambda: _embedded(job))
        for names in job.shapes:
            for which in ("drafter", "verifier"):

                def compare(names: Shapes = names, which: str = which) -> Found:
                    plain, tuned = job.of_shapes(names)
                    model = getattr(tuned, f"{which}_model")
                    return _logits(model, getattr(plain, which), tuned.vocabulary_size)

                record.step(f"{which} {names[which == 'verifier']}", compare)


def table(steps: dict[str, Found]) -> Rows:
    """A row for each comparison."""
    rows: Rows = [("comparison", "from float64", "transformers from float64", "captured from plain", "right")]
    for name, found in steps.items():
        cells = [f"{found[key]:.2g}" if key in found else NONE for key in ("ours", "theirs", "captured")]
        if "texts" in found:
            cells[0] = f"{found['same']} of {found['texts']} texts equal"
        rows.append((name, *cells, found.get("error") or ("yes" if found["right"] else "NO")))
    return rows


def _texts(job: Job) -> Found:
    """Nine methods in float64, on the device and on the CPU: the same tokens."""
    tokens = 8 if job.tiny else 40
    requests = [
        Request(
            token_ids=list(range(30, 42)), method=method, seed=seed, max_new_tokens=tokens, draft_length=3
        )
        for seed, method in enumerate(METHODS)
    ]

    def texts(device: torch.device) -> list[list[int]]:
        return [run.token_ids for run in Engine(job.embedded(device, "float64")).generate(requests)]

    here, there = texts(torch.device("cpu")), texts(job.device)
    same = sum(one == other for one, other in zip(here, there, strict=True))
    return {"texts": len(requests), "same": same, "right": same == len(requests)}


def _embedded(job: Job) -> Found:
    pair = job.embedded(job.device, str(job.dtype).removeprefix("torch."))
    return _logits(pair.verifier_model, copy.deepcopy(pair.verifier), pair.vocabulary_size)


def _logits(model: Model, plain: Any, vocabulary_size: int) -> Found:
    """Logits of the last tokens: ours, captured and not, transformers' own, and float64's, which uses `plain` up."""
    count = _PROMPT + sum(_WIDTHS)
    ids = None
    seen: dict[bool, Tensor] = {}
    for graphs in (True, False):
        with environment(graphs=graphs):
            passes = Passes(model, vocabulary_size, count)
            ids = passes.ids(count)
            passes.read(ids[:, :_PROMPT])
            parts, position = [], _PROMPT
            for width in _WIDTHS:
                parts.append(passes.captured(ids[:, position : position + width], position)[0].cpu().double())
                position += width
            seen[graphs] = torch.cat(parts)
            passes.close()
    assert ids is not None
    with torch.inference_mode():
        theirs = plain(ids).logits[0, _PROMPT:].cpu().double()
    exact = _exact(plain, ids.cpu())[_PROMPT:]
    spread = float(exact[:, :vocabulary_size].std())

    def apart(one: Tensor, other: Tensor) -> float:
        return float((one - other)[:, :vocabulary_size].abs().max()) / spread

    ours, own = apart(seen[True], exact), apart(theirs, exact)
    captured = apart(seen[True], seen[False])
    right = ours <= max(_TIMES * own, _FLOOR) and captured <= max(_TIMES * own, _FLOOR)
    return {"ours": ours, "theirs": own, "captured": captured, "right": right}


@torch.inference_mode()
def _exact(plain: Any, ids: Tensor) -> Tensor:
    """Logits [n, V] of a model in float64 on the CPU, where it goes, one layer at a time in float64; it is spoilt then."""
    plain.to("cpu")
    core = plain.base_model
    for module in (plain.get_input_embeddings(), core.norm, plain.get_output_embeddings()):
        module.double()
    with _doubled(core.layers):
        found: Tensor = plain(ids).logits[0]
    return found


@contextmanager
def _doubled(layers: Any) -> Iterator[None]:
    """Each layer is in float64 while it runs, since all of a large model would not fit."""
    dtype = next(layers[0].parameters()).dtype
    hooks = []

    def before(module: Any, _: Any) -> None:
        module.double()

    def after(module: Any, *_: Any) -> None:
        module.to(dtype)

    for layer in layers:
        hooks += [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
