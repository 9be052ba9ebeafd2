"""What if: every flip is a change of the verdict as the rules themselves give it, and a second run confirms it."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch

from specviz.core.counterfactual import critical_lenience, leniences
from specviz.core.methods import METHODS, PAPER
from specviz.core.sampling import SamplingParameters
from specviz.core.target import target_under
from specviz.engine import record
from specviz.engine.engine import Engine
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run, Token

PROMPT = "The quick brown fox jumps over"
BOTH = [
    name
    for name, method in METHODS.items()
    if method.drafts and method.verifies and critical_lenience(method) and method.is_compared
]
TEMPERATURES = (0.0, 0.7, 1.4)
UNBOUNDED = 1e6
"""How far out the verdicts of a rule whose lenience has no bounds are looked at."""


@pytest.fixture(scope="module")
def engine(pair: ModelPair) -> Engine:
    return Engine(pair, max_sequences=64)


@pytest.fixture(scope="module")
def runs(engine: Engine) -> list[Run]:
    """Runs of every method that examines, at several temperatures, with all that was known at every token."""
    return engine.generate(
        [
            Request(
                prompt=PROMPT,
                method=method,
                temperature=temperature,
                seed=seed,
                inspect=1,
                max_new_tokens=9,
                return_logits=True,
            )
            for seed, temperature in enumerate(TEMPERATURES)
            for method in BOTH
        ]
    )


def names(run: Run) -> list[str]:
    """The methods that every token is asked about, in their order."""
    return [one.method for one in run.alternatives]


def proposal(token: Token) -> int:
    return token.draft.id if token.draft else token.id


def verdicts(run: Run, position: int, method: str, at: list[float]) -> list[bool]:
    """Whether the proposal at a place of a run is accepted by a method at each of these leniences: by the rules."""
    token = run.tokens[position]
    logits = (side[position].expand(len(at), -1) for side in (run.drafter_logits, run.verifier_logits))
    asked, leniences = SamplingParameters(run.temperature), torch.tensor(at, dtype=torch.float64)
    target = target_under(METHODS[method], *logits, asked, leniences)
    return (token.coin < target.acceptance(torch.full((len(at),), proposal(token)))).tolist()


def test_every_flip_is_a_change_of_the_verdict_and_there_is_no_other(runs: list[Run]) -> None:
    examined, counts = 0, Counter()
    for run in runs:
        for position, token in enumerate(run.tokens):
            examined += 1
            for index, name in enumerate(names(run)):
                flips = token.what_if.flips[index]
                if name not in BOTH:
                    assert flips == []
                    continue
                counts[name, len(flips)] += 1
                low, high = (max(-UNBOUNDED, min(UNBOUNDED, end)) for end in METHODS[name].lenience_range)
                tiny = [1e-6 * max(1.0, abs(flip)) for flip in flips]
                both_sides = [x for flip, e in zip(flips, tiny, strict=True) for x in (flip - e, flip + e)]
                grid = [low + (high - low) * step / 30 for step in range(31)]
                if math.isinf(METHODS[name].lenience_range[0]):
                    grid += [-5 + step / 3 for step in range(31)]
                # Whatever lies closer to a flip than its own accuracy says nothing.
                near = [x for x in grid if all(abs(x - f) > e for f, e in zip(flips, tiny, strict=True))]
                at = sorted({*near, *(min(max(x, low), high) for x in both_sides)})
                found = verdicts(run, position, name, at)
                changes = [
                    (a, b) for (a, b), (x, y) in zip(pairwise(at), pairwise(found), strict=True) if x != y
                ]
                assert len(changes) == len(flips), (run.method, position, name, flips, changes)
                for flip, (before, after) in zip(flips, changes, strict=True):
                    assert before < flip <= after
    assert examined >= 200
    # All shapes were seen: no flip, one, and for every token rule two.
    assert all(counts[name, 0] and counts[name, 1] for name in BOTH)
    assert all(counts[name, 2] >= 5 for name in BOTH if "token" in name)
    assert sum(counts[name, 2] for name in ("typical_acceptance", "relaxed_top_k")) >= 2


def test_the_own_method_stands_among_the_nine_with_the_number_that_decided(runs: list[Run]) -> None:
    """Law 7: what is shown is what ran."""
    for run in runs:
        own = names(run).index(run.method)
        assert names(run) == [*PAPER, *({run.method} - set(PAPER))]
        assert run.alternatives[own].lenience == run.lenience
        assert {one.method: one.lenience for one in run.alternatives} == leniences(
            METHODS[run.method], run.lenience
        )
        for token in run.tokens:
            assert token.what_if.acceptance[own] == token.acceptance


def test_the_nine_verdicts_are_those_of_nine_runs_at_that_position(engine: Engine, runs: list[Run]) -> None:
    """Law 4: each method, run for one token after the same text with the same seed, decides as the strip says."""
    asked, expected = [], []
    for run in runs:
        token = run.tokens[-1]
        for index, one in enumerate(run.alternatives):
            asked.append(
                Request(
                    token_ids=run.prompt_ids + run.token_ids[:-1],
                    method=one.method,
                    lenience=one.lenience,
                    temperature=run.temperature,
                    seed=run.seed,
                    max_new_tokens=1,
                )
            )
            expected.append((one.method, token, token.what_if.acceptance[index]))
    for run, (method, token, acceptance) in zip(engine.generate(asked), expected, strict=True):
        [again] = run.tokens
        assert again.position == token.position
        assert again.accepted == (token.coin < acceptance), method
        if method in BOTH:
            assert (proposal(again), again.coin) == (proposal(token), token.coin)
            assert again.acceptance == pytest.approx(acceptance, abs=1e-6)  # batched settings are float32
        elif method == "drafter_only":
            assert again.id == proposal(token)


def first_change(run: Run, lenience: float) -> int | None:
    """The first token that may differ at another lenience, by what the run recorded."""
    own = names(run).index(run.method)
    low, high = sorted((run.lenience, lenience))
    for position, token in enumerate(run.tokens):
        crossed = sum(low < flip <= high for flip in token.what_if.flips[own])
        kept = token.what_if.kept
        if crossed % 2 or (kept and not kept[0] <= lenience < kept[1]):
            return position
    return None


def test_a_run_at_another_lenience_is_the_same_up_to_the_first_change(engine: Engine) -> None:
    """Law 4, behind the what-if slider: recorded numbers foretell where a second run parts from the first."""
    requests, grid = [], {}
    for method in BOTH:
        low, high = METHODS[method].offered_range
        grid[method] = [low + (high - low) * step / 4 for step in (0, 1, 3, 4)]
        for seed, temperature in ((0, 1.0), (1, 0.0)):
            base = {"prompt": PROMPT, "method": method, "seed": seed, "temperature": temperature}
            requests += [Request(**base, inspect=1, max_new_tokens=16)]
            requests += [Request(**base, lenience=at, max_new_tokens=16) for at in grid[method]]
    done = iter(engine.generate(requests))
    parted, flipped, same = 0, 0, 0
    for method in [method for method in BOTH for _ in range(2)]:
        run = next(done)
        for at in grid[method]:
            other, position = next(done), first_change(run, at)
            assert other.lenience == at
            if position is None:
                same += 1
                assert (other.token_ids, other.accepted) == (run.token_ids, run.accepted)
                continue
            parted += 1
            assert other.token_ids[:position] == run.token_ids[:position]
            assert other.accepted[:position] == run.accepted[:position]
            crossed = run.tokens[position].what_if.flips[names(run).index(method)]
            if sum(min(run.lenience, at) < flip <= max(run.lenience, at) for flip in crossed) % 2:
                flipped += 1
                assert other.tokens[position].accepted != run.tokens[position].accepted
                assert proposal(other.tokens[position]) == proposal(run.tokens[position])
            else:
                assert not other.tokens[position].accepted
    assert parted >= 30
    assert flipped >= 20
    assert same >= 5


def test_a_device_that_may_not_look_explains_the_same(
    engine: Engine, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off the CPU every place is explained, since to learn which ones matter would make it wait."""
    monkeypatch.setattr(record, "_examined", record.every_position)
    for run in runs[:: len(BOTH) - 1]:
        request = Request(
            prompt=PROMPT,
            method=run.method,
            temperature=run.temperature,
            seed=run.seed,
            inspect=1,
            max_new_tokens=9,
        )
        for one, other in zip(run.tokens, engine.generate(request)[0].tokens, strict=True):
            assert one.id == other.id
            assert one.what_if.acceptance == pytest.approx(other.what_if.acceptance, abs=1e-12)
            for mine, theirs in zip(one.what_if.flips, other.what_if.flips, strict=True):
                assert mine == pytest.approx(theirs, abs=1e-12)
