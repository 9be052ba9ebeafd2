"""Fused passes on the CPU: the published model, and the same bits for a token whatever is computed with it."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import math
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor

from specviz.core.sampling import confidence, distribution, draw
from specviz.engine.draft_length import (
    AcceptanceByConfidence,
    AcceptanceHistory,
    AdaptiveDraftLength,
    OwnDraftLengths,
)
from specviz.engine.round_costs import BatchCosts, RoundCosts
from specviz.runtime.cpu.fused import decoder, functions, processor, team
from specviz.runtime.cpu.fused.decoder_pass import FLAG_BYTES, Barrier, _take, wait_for
from specviz.runtime.cpu.fused.layout import Room, arrange
from specviz.runtime.cpu.fused.products import (
    PANEL_ROWS,
    SIDE_BYTES,
    Arithmetic,
    DotProducts,
    Format,
    Precision,
)
from specviz.runtime.cpu.fused.teamwork import MOST, Board
from specviz.schema.settings import MAX_DRAFT_LENGTH
from tests.support.checkpoints import SHAPES, fused, published

KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_1")
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_fused_model_is_the_published_model(shape: str, kind: str) -> None:
    """transformers in float32 on the dequantised weights; what 16-bit activations change is far below a draw's margin."""
    model = fused(published(shape, kind))
    with torch.inference_mode():
        wanted = model.module()(ids(2)).logits
    found = logits(model, ids(2))
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < (2e-4 if kind in ("F32", "F16", "BF16") else 3e-3) * wanted.std()
    information = (wanted.softmax(-1) * (wanted.log_softmax(-1) - found.log_softmax(-1))).sum(-1)
    assert information.mean() < 1e-6


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_has_the_same_bits_whatever_is_computed_with_it(kind: str, fast: bool) -> None:
    """Laws 2 and 3: neither the block, nor neighbours, nor threads show."""
    model = fused(published("qwen2", kind), fast=fast)
    model.decoder.threads = 1
    alone = logits(model, ids())
    for threads in (1, 2):
        model.decoder.threads = threads
        for blocks in ((1,), (2,), (4,), (3, 1, 5, 7), (6, 8), (9, 16), (64,)):
            assert torch.equal(logits(model, ids(), blocks), alone), (threads, blocks)
        together = logits(model, torch.cat([ids(3, seed=1), ids()]), (3, 5))
        assert torch.equal(together[3:], alone), threads


def test_padding_is_not_computed_and_harms_nobody() -> None:
    model = fused(published("llama", "Q8_0"))
    wanted, runner = logits(model, ids(2)), model.runner(203)
    runner.admit([0, 1], LENGTH)
    positions = torch.arange(LENGTH).expand(2, -1)
    lengths = torch.tensor([[LENGTH], [37]])
    found = runner.forward(ids(2), positions, visible=LENGTH, valid=positions < lengths)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1, :37], wanted[1, :37])


def test_what_memory_held_before_is_not_reckoned_with() -> None:
    """Scores are made of whole blocks of positions: of numbers too small for a float's exponent they would take a hundred times as long."""
    model = fused(published("llama", "Q8_0"))
    runner = model.runner(203)
    runner.admit([0], LENGTH)
    (slot,) = runner._cache._slots
    slot.keys[:] = slot.values[:] = 1e-40
    found = runner.forward(ids()[:, :37], torch.arange(37)[None], visible=37)
    assert torch.equal(found, logits(model, ids())[:, :37])
    keys = slot.keys.swapaxes(-1, -2).reshape(slot.values.shape)
    assert (np.abs(keys[:, :, :37]) > 1e-30).all()
    assert (keys[:, :, 37:64] == 0).all()


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
    one.admit([0, 1], 40)
    one.read(tokens[:2, :40], positions[:2, :40], visible=40)
    other.admit([2], 40)
    other.read(tokens[2:3, :40], positions[2:3, :40], visible=40)
    saved = other.save(0, 40)
    one.merge(other)
    one.admit([3], LENGTH)  # grows in both directions
    one.restore(3, saved, 40)
    assert other.owners == []
    one.release(0)
    assert one.owners == [3, 1, 2]
    one.arrange(lambda owner: owner)
    assert one.owners == [1, 2, 3]
    for owner in (1, 2):
        assert torch.equal(rest(one, owner), wanted[owner, 40:])
    third = model.runner(203)
    third.copy(1, one)
    assert torch.equal(rest(third, 1), wanted[1, 40:])
    third.admit([2], LENGTH)
    third.broadcast(slice(0, 2), 40)
    same = third.save(1, 40)
    longer = torch.arange(LENGTH, LENGTH + 64)[None]
    third.forward(
        tokens[:1, :64], longer, visible=LENGTH + 64, slots=slice(1, 2)
    )  # past what it was admitted for
    for slot in (0, 1):
        assert all(np.array_equal(a, b) for a, b in zip(same, third.save(slot, 40), strict=True))


def test_layers_can_be_left_out_and_share_all_weights() -> None:
    model = fused(published("llama", "Q4_1", layers=4))
    shorter = model.with_layers([0, 3], lambda: None)
    assert shorter.decoder.layers == 2
    assert shorter.weight_bytes < model.weight_bytes
    before = logits(model, ids())
    assert not torch.equal(logits(shorter, ids()), before)
    assert torch.equal(logits(model, ids()), before)


def test_fast_activations_are_told_apart_and_less_exact() -> None:
    checkpoint = published("llama", "Q8_0")
    exact, fast = fused(checkpoint), fused(checkpoint, fast=True)
    assert (exact.precision, fast.precision) == (
        "Q8_0 weights, exact activations",
        "Q8_0 weights, fast activations",
    )
    wanted = exact.module()(ids()).logits
    errors = [(logits(model, ids()) - wanted).abs().mean() for model in (exact, fast)]
    assert 20 * errors[0] < errors[1] < 0.1 * wanted.std()


DIGEST = """
from specviz.runtime.cpu.fused.processor import dot_products
from tests.unit.runtime.test_fused import digests
print(dot_products().name, *digests())
"""
AVX2 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt"


def digest(kind: str, fast: bool) -> str:
    """Of the bits of a text's logits."""
    found = logits(fused(published("llama", kind), fast=fast), ids(), (5, 1, 3))
    return hashlib.sha256(found.contiguous().numpy().tobytes()).hexdigest()[:16]


def digests() -> list[str]:
    """One for each way to store weights and to round activations."""
    return [digest(kind, fast) for kind in ("Q8_0", "Q4_1", "BF16") for fast in (False, True)]


@pytest.mark.parametrize(("features", "dots"), [(AVX2, "PAIRS"), (f"{AVX2},+avxvnni", "VNNI_256")])
def test_bits_are_the_same_on_other_processors(features: str, dots: str) -> None:
    """Integers are exact, and float operations are the same ones, whatever instructions do them.

    Code for other processors is kept where this one's is, under a name of its own.
    """
    if dots == "VNNI_256" and "avx_vnni" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("needs a processor with AVX-VNNI")
    target = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    other = subprocess.run(
        [sys.executable, "-c", DIGEST],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **target},
    ).stdout.split()
    assert other[0] == dots
    assert other[1:] == digests()


@pytest.mark.parametrize("vocabulary", [203, 500])
@pytest.mark.parametrize("slots", [3, 70])
def test_what_is_drafted_in_one_go_is_what_passes_one_by_one_draw(slots: int, vocabulary: int) -> None:
    """To the bit: tokens, distributions, logits and confidences, where every slot drafts as much as it likes."""
    model = fused(published("llama", "Q8_0"))
    if vocabulary > 203:  # of which it knows every other token
        own = np.arange(vocabulary) // 2 % 203
        model = dataclasses.replace(model, kept=2 * torch.arange(203), reads=own)
    generator = torch.Generator().manual_seed(slots)
    texts, coins = ids(slots), torch.rand(slots, 4, dtype=torch.float64, generator=generator)
    heats = torch.tensor([[0.0], [0.7], [1.0]], dtype=torch.float64).repeat(slots, 1)[:slots]
    ends = [slot % 4 + 1 for slot in range(slots)]
    together, apart = model.runner(vocabulary), model.runner(vocabulary)
    for runner in (together, apart):
        runner.admit(list(range(slots)), LENGTH)
        runner.read(texts[:, :20], torch.arange(20).expand(slots, -1), visible=20)
    line = torch.zeros(slots, 5, dtype=torch.long)
    line[:, 0] = texts[:, 20]
    expected = line.clone()
    room, kept = torch.zeros(2, slots, 4, vocabulary)
    sure = torch.zeros(slots, 4)
    together.draft(line, room, ends, [20] * slots, heats, coins, kept=kept, sure=sure)
    for step in range(4):
        valid = torch.tensor([[step < end] for end in ends])
        positions = torch.full((slots, 1), 20 + step)
        logits = apart.forward(expected[:, step : step + 1], positions, visible=21 + step, valid=valid)
        q = distribution(logits, heats)
        tokens = draw(q, coins[:, step : step + 1])
        drawn = valid[:, 0]
        expected[drawn, step + 1] = tokens[drawn, 0]
        assert torch.equal(room[drawn, step], q[drawn, 0])
        assert torch.equal(kept[drawn, step], logits[drawn, 0])
        assert torch.equal(sure[drawn, step], confidence(logits, heats, q, tokens)[drawn])
    assert torch.equal(line, expected)


def test_room_of_a_round_is_kept_while_there_are_slots() -> None:
    """What is written to it comes out as from memory of its own; another round finds the same, and the last slot leaves none behind."""
    model = fused(published("llama", "Q8_0"))
    runner, positions = model.runner(203), torch.arange(8).expand(2, -1)
    runner.admit([0, 1], LENGTH)
    valid = positions < torch.tensor([[8], [3]])
    how: dict[str, Any] = {"visible": 8, "valid": valid}
    own = runner.forward(ids(2)[:, :8], positions, **how)
    kept = runner.forward(ids(2)[:, :8], positions, **how, transient=True)
    assert torch.equal(own[valid], kept[valid])
    assert runner.room("padded", 2, 8, 203).data_ptr() == kept.data_ptr() != own.data_ptr()
    for owner in (0, 1):
        assert runner._rooms
        runner.release(owner)
    assert not runner._rooms


def drafted_with(rule: Any, runner: Any, stops: list[int], dice: random.Random) -> tuple[list[int], Any]:
    """Draft tokens of each slot from random tokens on, and how sure the drafter was of each."""
    slots = len(stops)
    line = torch.zeros(slots, 1 + MAX_DRAFT_LENGTH, dtype=torch.long)
    line[:, 0] = torch.tensor([dice.randrange(203) for _ in range(slots)])
    room, sure = torch.empty(slots, MAX_DRAFT_LENGTH, 203), torch.zeros(slots, MAX_DRAFT_LENGTH)
    coins = torch.tensor([[dice.random() for _ in range(MAX_DRAFT_LENGTH)] for _ in range(slots)]).double()
    heat = dice.choice([0.0, 0.1, 1.0])
    counts = runner.draft(line, room, stops, [20] * slots, heat, coins, sure=sure, stopping=rule.stopping())
    return counts, sure


def ready(slots: int) -> Any:
    runner = fused(published("llama", "Q8_0")).runner(203)
    runner.admit(list(range(slots)), LENGTH)
    runner.read(ids(slots)[:, :20], torch.arange(20).expand(slots, -1), visible=20)
    return runner


def test_drafting_in_one_go_stops_where_the_rule_says() -> None:
    """As `AdaptiveDraftLength.stop` says after each step, whatever was accepted and paid before."""
    dice, lengths, runner = random.Random(1), set(), ready(1)
    costs, history, known = RoundCosts(), AcceptanceHistory(), AcceptanceByConfidence()
    for length in (4, 2):
        costs.update(length, length, 0.5 * length, 9.0 + length)
    for _ in range(60):
        rule = AdaptiveDraftLength(costs, [history], [known])
        stops = [MAX_DRAFT_LENGTH - (dice.random() < 0.2) * dice.randrange(14)]
        [count], sure = drafted_with(rule, runner, stops, dice)
        steps = range(1, stops[0] + 1)
        assert count == next((step for step in steps if rule.stop(sure[:, :step].tolist())), stops[0])
        lengths.add(count)
        rejected = (dice.random() < 0.5) * dice.randrange(1, count + 1)
        history.update(count, count - rejected)
        known.update(sure[0, :count].tolist(), count - rejected)
        costs.update(count, count, count * dice.uniform(0.2, 0.8), 9 + count * dice.random())
    assert len(lengths) > 4


def test_each_slot_stops_where_its_own_next_draft_token_does_not_pay() -> None:
    """Whatever its neighbours draft; slots whose K is fixed draft that. One more pass must pay for all that go on, unless one of these is fixed."""
    dice, differ, together, runner = random.Random(3), 0, 0, ready(4)
    costs, chooses = BatchCosts(), [True, False, True, True]
    histories, known = [AcceptanceHistory() for _ in range(3)], [AcceptanceByConfidence() for _ in range(3)]
    for tokens in (8, 16, 9, 12):
        costs.update(4, tokens, 2, 3.0 + 0.5 * tokens)
    for _ in range(40):
        rule = OwnDraftLengths(costs, chooses, histories, known, (1, 5))
        stops = [
            MAX_DRAFT_LENGTH,
            dice.randrange(1, 9),
            dice.randrange(2, MAX_DRAFT_LENGTH),
            MAX_DRAFT_LENGTH,
        ]
        counts, sure = drafted_with(rule, runner, stops, dice)
        stopping = rule.stopping()
        needed = stopping.needed
        assert counts[1] == stops[1]
        own = {slot: sure[slot].tolist() for slot in (0, 2, 3)}
        survival = {
            slot: [math.prod(map(rates.at, own[slot][:step])) for step in range(1, stops[slot])]
            for slot, rates in zip(own, known, strict=True)
        }
        on, step = list(own), 0
        ends = dict.fromkeys(on, 0)
        while on:
            step += 1
            ends |= dict.fromkeys(on, step)
            on = [slot for slot in on if step < stops[slot] and survival[slot][step - 1] > needed[step - 1]]
            surplus = sum(survival[slot][step - 1] - needed[step - 1] for slot in on)
            if step >= stops[1] and not surplus > stopping.needed_together:
                together += bool(on)
                break
        assert {slot: counts[slot] for slot in ends} == ends
        for slot, rates, history in zip((0, 2, 3), known, histories, strict=True):
            accepted = counts[slot] - (dice.random() < 0.3) * dice.randrange(1, counts[slot] + 1)
            history.update(counts[slot], accepted)
            rates.update(own[slot][: counts[slot]], accepted)
        differ += len({counts[0], counts[2], counts[3]}) > 1
        costs.update(4, sum(counts), max(counts), 3.0 + (0.4 + 0.2 * dice.random()) * sum(counts))
    assert differ > 10
    assert together > 0


@pytest.mark.skipif(not processor.has_tiles(), reason="needs a processor with AMX that may be used")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_the_matrix_unit_changes_no_bit(kind: str, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: of sixteen rows, of what is left of more, and of fewer, which it is not asked for."""
    checkpoint = published("llama", kind)
    by_tiles = fused(checkpoint, fast=fast)
    monkeypatch.setattr(processor, "has_tiles", lambda: False)
    without = fused(checkpoint, fast=fast)
    assert by_tiles.decoder.arithmetic.has_tiles > without.decoder.arithmetic.has_tiles
    for block in (12, 13, 16, 29, 45, LENGTH):
        assert torch.equal(logits(by_tiles, ids(), (block,)), logits(without, ids(), (block,)))


@pytest.mark.parametrize("kind", ["BF16", "Q8_0", "Q4_1"])
def test_how_weights_are_read_changes_no_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: whatever a processor reads fastest, of as many rows as are multiplied at once, and of more."""
    checkpoint, readings = published("llama", kind), (processor.USUAL, processor.ZEN_5, processor.ZEN_5_PAST)
    models = []
    for each in readings:
        monkeypatch.setattr(processor, "reading", lambda _, each=each: each)
        models.append(fused(checkpoint))
    for block in (1, 2, 3, 5, 7, 8, 9, 13, LENGTH):
        expected, *others = (logits(model, ids(), (block,)) for model in models)
        assert all(torch.equal(other, expected) for other in others)


def test_weights_are_read_as_the_processor_likes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Zen 5 what fits the last cache is kept there, and what does not is read past it; elsewhere all is read alike."""
    small, large = 10 << 20, 96 << 20
    monkeypatch.setattr(processor, "target_name", lambda: "znver5")
    assert (processor.reading(small), processor.reading(large)) == (processor.ZEN_5, processor.ZEN_5_PAST)
    for name in ("znver4", "sapphirerapids", "haswell"):
        monkeypatch.setattr(processor, "target_name", lambda name=name: name)
        assert processor.reading(small) == processor.reading(large) == processor.USUAL


@pytest.mark.parametrize("dots", DotProducts)
def test_no_sum_of_integers_overflows(dots: DotProducts) -> None:
    """The largest activations times the largest weights, in 32 bits; in 16 where AVX2 sums pairs of bytes."""
    most = {Format.Q4_1: 15, Format.Q8_0: 255}
    for weights, largest in most.items():
        for precision in Precision:
            arithmetic = Arithmetic(dots, precision).meeting(weights)
            if arithmetic.dots is DotProducts.NIBBLES and weights is Format.Q4_1:
                assert 16 * largest * 128 < 2**15
            assert 32 * largest * precision.value * (1 if arithmetic.levels == 1 else 2) < 2**31, (
                weights,
                precision,
            )


@pytest.mark.parametrize("dots", [DotProducts.PAIRS, DotProducts.NIBBLES])
@pytest.mark.parametrize("precision", Precision)
def test_the_largest_integers_come_out_exactly(dots: DotProducts, precision: Precision) -> None:
    """Blocks of nothing but the largest weights and activations, of either sign: a sum that overflowed would be far off."""
    arithmetic, blocks = Arithmetic(dots, precision), 4
    published = np.full((16, blocks, 20), 0xFF, np.uint8)
    published[..., :4] = np.array([1, 0], np.float16).view(np.uint8)  # scale and minimum
    weights = Room(1 << 16).take(16 * blocks * 20)
    arrange(published.reshape(16, -1), Format.Q4_1, weights.reshape(1, -1))
    x = np.repeat(np.array([[1.0], [-1.0], [0.5]], np.float32), 32 * blocks, 1)
    panel = np.zeros(blocks * arithmetic.panel_stride, np.uint8)
    quantise = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(functions.quantise(arithmetic))
    side = panel.ctypes.data + PANEL_ROWS * arithmetic.block_bytes
    for row, own in enumerate(x):
        at = panel.ctypes.data + row * arithmetic.block_bytes
        quantise(own.ctypes.data, at, side + row * SIDE_BYTES, blocks)
    start, out = np.zeros(16, np.float32), np.zeros((3, 16), np.float32)
    multiply = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 11)(functions.multiply(Format.Q4_1, arithmetic))
    outputs = (start.ctypes.data, 0, out.ctypes.data, out.strides[0])
    multiply(weights.ctypes.data, panel.ctypes.data, panel.nbytes, *outputs, 0, 1, blocks, 3)
    assert np.allclose(out, 15 * x.sum(1, keepdims=True), rtol=1e-6)


# ---- compiled code ------------------------------------------------------------------------------------------


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Compile a small function, or read it; whether it was read."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(folder))
    functions.quantise.__wrapped__(Arithmetic(DotProducts.PAIRS, Precision.EXACT))
    return functions._alive.pop().was_cached


def test_compiled_code_is_cached_and_a_damaged_file_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not compiled(tmp_path, monkeypatch)
    assert compiled(tmp_path, monkeypatch)
    (path,) = (tmp_path / "compiled").glob("*.bin")
    for damage in (path.read_bytes()[:-7], b"", b"\0" * 200):
        path.write_bytes(damage)
        assert not compiled(tmp_path, monkeypatch)
        assert compiled(tmp_path, monkeypatch)


def test_a_cache_that_cannot_be_written_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "compiled").write_text("a file where the folder should be")
    assert not compiled(tmp_path, monkeypatch)
    assert not compiled(tmp_path, monkeypatch)


def test_code_for_another_source_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not compiled(tmp_path, monkeypatch)
    monkeypatch.setattr(functions, "_source", "changed")
    assert not compiled(tmp_path, monkeypatch)


# ---- threads ------------------------------------------------------------------------------------------------


def test_a_forked_process_runs_passes_with_helpers_of_its_own() -> None:
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
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(5):
            if not torch.equal(logits(models[index], ids(), (3, 1)), wanted[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_every_part_of_a_stage_is_taken_once_whoever_is_fast() -> None:
    """Threads that are done with their own share take over what others have not begun; also all of it, from one that never comes."""
    flags, board = np.zeros(MOST * FLAG_BYTES // 8, np.int64), np.zeros(len(Barrier), np.int64)
    board[Barrier.FLAGS] = flags.ctypes.data

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def work(team, thread, threads, units, done):  # type: ignore[no-untyped-def]
        for step in range(len(done)):
            first, last = _take(team, thread, threads, step + 1, units, 0)
            while first < last:
                for unit in range(first, last):
                    done[step, unit] += 1
                first, last = _take(team, thread, threads, step + 1, units, last)
            wait_for(team, thread, threads, step + 1)

    def run(units: int, present: int, threads: int) -> np.ndarray:
        flags[:] = 0
        for absent in range(present, threads):
            flags[absent * FLAG_BYTES // 8] = 1 << 40  # nobody waits for it
        own = np.zeros((threads, 600, max(units, 1)), np.int64)
        workers = [
            threading.Thread(target=work, args=(board.ctypes.data, each, threads, units, own[each]))
            for each in range(present)
        ]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        return own.sum(0)

    board[Barrier.YIELD] = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
    for units in (1, 2, 3, 15, 41):
        assert (run(units, 1, 1) == 1).all()
        assert (run(units, 2, 2) == 1).all()
        assert (run(units, 3, 3) == 1).all()
        assert (run(units, 2, 3) == 1).all()


def test_after_waiting_again_and_again_passes_run_alone_for_a_while() -> None:
    """A second thread must not spin while another process wants its core; once is no reason to do without it."""
    own, calls, waits = team.Team(), list[int](), [0, 1, 0, 0, 1, 1, 1]

    def lead(_: int, __: int, threads: int) -> int:
        calls.append(threads)
        return waits[len(calls) - 1]

    own._lead = lead
    for _ in waits:
        own.run(0, 2)
    assert calls == [2] * len(waits)
    waits += [0, 1, 1, 1]
    assert not own.run(0, 2)
    assert calls[-1] == 1
    own._alone_until = 0.0
    assert [own.run(0, 2) for _ in range(3)] == [False] * 3
    assert calls[-3:] == [2] * 3
    assert own._alone_until - time.monotonic() > team._SHORTEST_PAUSE, "the pause does not grow"


@pytest.mark.parametrize(("busy", "chosen"), [(8, 2), (16, 2), (24, 1)])
def test_one_thread_is_chosen_only_where_it_stays_the_quickest(
    busy: int, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is chosen stays: a program that has the second core while a model is loaded must not decide it at once."""
    own = fused(published("llama", "Q8_0")).decoder
    clock, passes = [0.0], {1: 0, 2: 0}

    def run(*_: Any) -> bool:
        passes[own.threads] += 1
        clock[0] += 1.0 if own.threads == 1 else 2.0 if passes[2] <= busy else 0.6
        return True

    monkeypatch.setattr(own, "run", run)
    monkeypatch.setattr(decoder, "most_threads", lambda: 2)
    monkeypatch.setattr(decoder.time, "perf_counter", lambda: clock[0])
    own.choose_threads()
    monkeypatch.undo()
    assert own.threads == chosen


def test_a_helper_sleeps_between_passes() -> None:
    model = fused(published("llama", "Q8_0"))
    model.decoder.threads = 2
    logits(model, ids())
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.25
    assert team.team()._board[Board.JOB] > 0
