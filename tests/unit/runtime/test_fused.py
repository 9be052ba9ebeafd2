"""Fused passes on the CPU: the published model, and the same bits for a token whatever is computed with it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specviz.models.checkpoint import QUANTISED
from specviz.runtime.cpu.fused import decoder, functions, plain, processor
from specviz.runtime.cpu.fused.layout import aligned, arrange
from specviz.runtime.cpu.fused.processor import DotProducts
from specviz.runtime.cpu.fused.products import Arithmetic, Format, Kernel, Precision
from specviz.runtime.cpu.fused.tables import MATRIX
from tests.support.checkpoints import SHAPES, fused, published

KINDS = ("F32", "F16", "BF16", *QUANTISED)
LENGTH = 90


def ids(rows: int = 1, seed: int = 0) -> Tensor:
    return torch.randint(200, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))


def logits(model: Any, tokens: Tensor, blocks: tuple[int, ...] = (LENGTH,)) -> Tensor:
    """Of whole texts, read in blocks, the last of which is repeated as often as needed."""
    runner = model.runner(203)
    runner.admit(list(range(len(tokens))), LENGTH)
    found, first = [], 0
    for block in (*blocks, *[blocks[-1]] * LENGTH):
        last = min(first + block, LENGTH)
        positions = torch.arange(first, last).expand(len(tokens), -1)
        if first < last:
            found.append(runner.forward(tokens[:, first:last], positions, visible=last))
        first = last
    return torch.cat(found, 1)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the latest decoder was made of."""
    parts: list[Any] = []

    class Recorded(decoder.Decoder):
        def __init__(self, *given: Any) -> None:
            parts[:] = given
            super().__init__(*given)

    monkeypatch.setattr(decoder, "Decoder", Recorded)
    return parts


# Activations are rounded where weights are quantised: only there `fast` says how.
CASES = [(shape, kind, False) for shape, kind in zip(SHAPES, KINDS, strict=True)]
CASES += [(shape, kind, True) for shape, kind, _ in CASES if kind in QUANTISED]


@pytest.mark.parametrize(("shape", "kind", "fast"), CASES)
def test_a_fused_pass_computes_the_published_model_and_what_plain_numpy_says(
    shape: str, kind: str, fast: bool, parts: list[Any]
) -> None:
    """transformers computes in float32 on the dequantised weights. Plain numpy rounds activations too: what is left are float32's
    rounding, and activations that it rounds to another byte.
    """
    model = fused(published(shape, kind), fast=fast)
    found, wanted = logits(model, ids()), model.module()(ids()).logits
    how = "float" if kind not in QUANTISED else "fast" if fast else "exact"
    assert model.precision == (kind if how == "float" else f"{kind} weights, {how} activations")
    most = {"float": 2e-4, "exact": 3e-3, "fast": 0.5}
    assert (found - wanted).abs().max() < most[how] * wanted.std()
    information = (wanted.softmax(-1) * (wanted.log_softmax(-1) - found.log_softmax(-1))).sum(-1)
    assert information.mean() < (3e-3 if how == "fast" else 1e-6)
    *weights, arithmetic = parts
    assert arithmetic.precision is (Precision.FAST if fast else Precision.EXACT)
    plainly = plain.logits(*weights, arithmetic.precision, ids()[0].numpy())
    errors = np.abs(found[0, :, : plainly.shape[1]].numpy() - plainly) / plainly.std()
    most = {"float": 5e-5, "exact": 1e-3, "fast": 0.1}
    assert errors.max() < most[how]
    assert errors.mean() < most[how] / 10


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("kind", [Format.Q4_1, Format.Q8_0])
@pytest.mark.parametrize("rows", [1, 3, 18])
def test_the_largest_integers_come_out_exactly(rows: int, kind: Format, precision: Precision) -> None:
    """Blocks of nothing but the largest weights and activations, of either sign: a sum that overflowed would be far off."""
    dots, blocks, bytes_ = processor.dot_products(), 4, 20 if kind is Format.Q4_1 else 34
    assert dots
    # In pairs the smaller integers of FAST are the same code.
    for each in {dots, DotProducts.PAIRS} if precision is Precision.EXACT else {dots}:
        kernel = Kernel(kind, Arithmetic(each, precision))
        published = np.full((16, blocks, bytes_), 0x7F if kind is Format.Q8_0 else 0xFF, np.uint8)
        published[..., : bytes_ % 16] = np.array([1, 0], np.float16).view(np.uint8)[: bytes_ % 16]
        weights = aligned(blocks * kind.block_bytes)
        arrange(published.reshape(16, -1), kind, weights.reshape(1, -1))
        x = np.repeat(np.resize(np.array([1.0, -1.0, 0.5], np.float32), rows)[:, None], 32 * blocks, 1)
        panels = np.zeros(-(-rows // 16) * blocks * kernel.block_bytes, np.uint8)
        pack = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(functions.pack(kernel))
        for row, own in enumerate(x):
            at = row // 16 * blocks * kernel.block_bytes + row % 16 * kernel.row_bytes
            pack(own.ctypes.data, panels.ctypes.data + at, blocks)
        matrix, out = np.zeros(1, MATRIX), np.ones((rows, 16), np.float32)
        matrix["weights"], matrix["blocks"] = weights.ctypes.data, blocks
        multiply = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)(functions.multiply(kernel))
        addresses = (matrix.ctypes.data, panels.ctypes.data, out.ctypes.data, out.strides[0])
        multiply(*addresses, rows, 0, 1)
        largest = 15 if kind is Format.Q4_1 else 127
        assert np.allclose(out, 1 + largest * x.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "fast"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in QUANTISED)]
)
def test_a_token_has_the_same_bits_whatever_is_computed_with_it(kind: str, fast: bool) -> None:
    """Laws 2 and 3, whatever the number of threads."""
    model = fused(published("qwen2", kind), fast=fast)
    model.decoder.threads = 1
    alone = logits(model, ids())
    for threads in (1, 2):
        model.decoder.threads = threads
        for blocks in ((1,), (2,), (3, 1, 5, 7), (6, 8), (9, 64)):
            assert torch.equal(logits(model, ids(), blocks), alone), (threads, blocks)
        together = logits(model, torch.cat([ids(3, seed=1), ids()]), (3, 5))
        assert torch.equal(together[3:], alone), threads


def test_slots_move_grow_merge_and_are_restored_with_their_bits() -> None:
    """A slot's keys and values are its own, whatever happens to others."""
    model = fused(published("llama", "F32"))
    tokens, positions = ids(4), torch.arange(LENGTH).expand(4, -1)
    wanted = logits(model, tokens)

    def rest(runner: Any, owner: int) -> Tensor:
        slot = runner.owners.index(owner)
        part = slice(40, LENGTH)
        own = tokens[owner : owner + 1, part], positions[:1, part]
        return runner.forward(*own, visible=LENGTH, slots=slice(slot, slot + 1))[0]

    one, other = model.runner(203), model.runner(203)
    one.admit([0, 1], LENGTH)
    one.read(tokens[:2, :40], positions[:2, :40], visible=40)
    other.admit([2], LENGTH)
    other.read(tokens[2:3, :40], positions[2:3, :40], visible=40)
    saved = other.save(0, 40)
    one.merge(other)
    one.admit([3], LENGTH)
    one.restore(3, saved, 40)
    assert other.owners == []
    one.release(0)
    assert one.owners == [3, 1, 2]
    for owner in (1, 2):
        assert torch.equal(rest(one, owner), wanted[owner, 40:])
    third = model.runner(203)
    third.copy(1, one)
    assert torch.equal(rest(third, 1), wanted[1, 40:])
    third.admit([2], LENGTH)
    third.broadcast(slice(0, 2), 40)
    assert all(np.array_equal(a, b) for a, b in zip(third.save(0, 40), third.save(1, 40), strict=True))


HASWELL = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt",
}
ELSEWHERE = """
import pickle, sys
import numpy as np
from specviz.runtime.cpu.fused.decoder import Decoder
from specviz.runtime.cpu.fused.processor import dot_products
from specviz.runtime.cpu.fused.products import Arithmetic, Precision

models, tokens = pickle.load(sys.stdin.buffer)
found = [dot_products().name]
for parts in models:
    model = Decoder(*parts, Arithmetic(dot_products(), Precision.EXACT))
    cache, out = model.new_cache(), np.empty((len(tokens), 208), np.float32)
    cache.add(1, len(tokens))
    model.run(tokens, 0 * tokens, np.arange(len(tokens)), cache, out.ctypes.data, out.strides[0])
    found.append(out[:, :203])
sys.stdout.buffer.write(pickle.dumps(found))
"""


def test_bits_are_the_same_on_other_processors(parts: list[Any]) -> None:
    """Integers are exact, and float operations are the same ones, whatever instructions do them.

    Code for another processor is cached where this one's is, under a name of its own.
    """
    found, models = list[Tensor](), list[list[Any]]()
    for kind in ("Q8_0", "BF16"):
        found.append(logits(fused(published("llama", kind)), ids())[0, :60])
        models.append(parts[:-1])
    given = pickle.dumps((models, ids()[0, :60].numpy()))
    command, environment = [sys.executable, "-c", ELSEWHERE], os.environ | HASWELL
    done = subprocess.run(command, input=given, env=environment, check=True, stdout=subprocess.PIPE)
    name, *others = pickle.loads(done.stdout)
    assert name == "PAIRS"
    assert all(np.array_equal(one, other) for one, other in zip(found, others, strict=True))


@pytest.mark.parametrize("kind", ["BF16", "Q4_1"])
def test_how_weights_are_read_changes_no_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: whatever a processor reads fastest, of as many rows as are multiplied at once, and of more."""
    checkpoint, models = published("llama", kind), []
    for each in (processor.USUAL, processor.ZEN_5):  # other readings differ in what is prefetched
        monkeypatch.setattr(processor, "reading", lambda _, each=each: each)
        models.append(fused(checkpoint))
    for block in (1, 2, 5, 7, 8, 13):
        one, other = (logits(model, ids(), (block,)) for model in models)
        assert torch.equal(one, other), block


# ---- threads ------------------------------------------------------------------------------------------------


def test_a_forked_process_runs_passes_with_workers_of_its_own() -> None:
    model = fused(published("llama", "Q8_0"))
    model.decoder.threads = 2
    wanted = logits(model, ids())
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(logits(model, ids()).tolist()))
    child.start()
    found = torch.tensor(answers.get())
    child.join(20)
    assert child.exitcode == 0
    assert torch.equal(found, wanted)


def test_passes_of_several_models_at_once_keep_their_bits() -> None:
    models = [fused(published("llama", kind, seed=seed)) for seed, kind in enumerate(("Q8_0", "Q4_1", "F32"))]
    for model in models:
        model.decoder.threads = 2
    wanted = [logits(model, ids()) for model in models]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda model: logits(model, ids(), (3, 1)), models * 5))
    assert all(torch.equal(*both) for both in zip(found, wanted * 5, strict=True))
