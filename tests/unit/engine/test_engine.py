"""The engine against the laws, on tiny random models in float64, where the laws hold to the last token."""

from __future__ import annotations

import dataclasses
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from specviz.core.methods import METHODS, OWN_RULE, PAPER
from specviz.core.reference import Decision, NextLogits
from specviz.core.reference import generate as plainly
from specviz.core.sampling import distribution
from specviz.engine.batch import Batch
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Finished, Started
from specviz.engine.pair import load_pair
from specviz.engine.sequence import Sequence
from specviz.errors import EngineError, RequestError
from specviz.models.decoding import TokenLabels
from specviz.models.pair import ModelPair
from specviz.models.registry import HubSource, PairSpec
from specviz.runtime import model_runner
from specviz.runtime.pass_times import PassTimes
from specviz.runtime.prefix_cache import SHORTEST
from specviz.schema.settings import MAX_DRAFT_LENGTH, Request
from specviz.schema.trace import Run
from tests.support.tiny import FAMILIES, tiny_pair

PROMPT = "The quick brown fox jumps over"
BOTH = [name for name in PAPER if METHODS[name].drafts and METHODS[name].verifies]


def one(engine: Engine, **settings) -> Run:
    [run] = engine.generate(Request(**{"prompt": PROMPT, "max_new_tokens": 40} | settings))
    return run


def endless(pair: ModelPair) -> ModelPair:
    """The same pair with no end-of-sequence token."""
    return dataclasses.replace(pair, eos_token_ids=frozenset())


@torch.inference_mode()
def reference(pair: ModelPair, run: Run, count: int) -> list[Decision]:
    """What `specviz.core.reference` decides at up to `count` positions after a run's prompt."""

    def next_logits(model: torch.nn.Module) -> NextLogits:
        return lambda ids: model(input_ids=torch.tensor([list(ids)])).logits[0, -1, : pair.vocabulary_size]

    names = ("method", "lenience", "temperature", "seed", "repetition_penalty", "greedy_drafts")
    models, settings = map(next_logits, (pair.drafter, pair.verifier)), {n: getattr(run, n) for n in names}
    ends = {"max_new_tokens": count, "eos_token_ids": pair.eos_token_ids}
    return list(plainly(*models, run.prompt_ids, **settings, **ends))


def check_against_reference(
    pair: ModelPair, run: Run, steps: list[Decision], tolerance: float = 1e-9
) -> None:
    assert run.token_ids == [step.token for step in steps]
    assert run.stop_reason == ("eos" if run.token_ids[-1] in pair.eos_token_ids else "length")  # law 6
    for token, step in zip(run.tokens, steps, strict=True):
        assert token.accepted == step.accepted
        assert (token.draft.id if token.draft else None) == step.draft
        for name in ("acceptance", "coin", "q", "p", "pi"):
            assert getattr(token, name) == pytest.approx(getattr(step, name), abs=tolerance), name
        if token.acceptance is not None and token.coin is not None:
            assert token.accepted == (token.coin < token.acceptance)


@pytest.mark.parametrize(
    ("temperature", "penalty", "greedy"), [(0.0, 1.3, False), (0.7, 0.8, True), (1.0, 1.0, False)]
)
def test_texts_verdicts_and_numbers_are_those_of_a_plain_recomputation(
    pair: ModelPair, temperature: float, penalty: float, greedy: bool
) -> None:
    """Laws 2, 3 and 7: for every method and K, in one batch, inspected and not, with greedy drafts beside drawn ones."""
    requests = [
        Request(
            prompt=PROMPT,
            temperature=temperature,
            repetition_penalty=penalty,
            method=method,
            seed=seed,
            draft_length=k,
            inspect=2 * (k == 3),
            greedy_drafts=own,
            max_new_tokens=10,
        )
        for seed, method in enumerate(METHODS)
        for own in ((True, False) if greedy else (False,))
        for k in ((1, 3, 8, "auto") if own == greedy else (3,))
    ]
    steps: dict[tuple[str, bool], list[Decision]] = {}
    for run in Engine(pair, max_sequences=64).generate(requests):
        key = run.method, run.greedy_drafts
        steps[key] = steps.get(key) or reference(pair, run, 10)
        check_against_reference(pair, run, steps[key])
        if run.greedy_drafts:
            assert {proposal.q for each in run.rounds for proposal in each.proposals} <= {1.0}
    assert sum(len({step.accepted for step in own}) == 2 for own in steps.values()) > len(METHODS) / 2


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.6])
def test_methods_that_match_write_the_verifiers_own_text(pair: ModelPair, temperature: float) -> None:
    """Sampler match writes what verifier_only writes, and shared noise the same whichever model drafts."""
    common: dict[str, Any] = {"prompt": PROMPT, "temperature": temperature, "max_new_tokens": 30}
    alone, match, coupled = Engine(pair).generate(
        [Request(method=name, **common) for name in ("verifier_only", "sampler_match", "gumbel_coupling")]
    )
    assert match.token_ids == alone.token_ids
    itself = dataclasses.replace(pair, drafter_model=pair.verifier_model)
    [again] = Engine(itself).generate(Request(method="gumbel_coupling", **common))
    assert again.token_ids == coupled.token_ids
    assert all(again.accepted)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_full_recomputation(family: str, tmp_path: Path) -> None:
    """Slot cache, positions, masks and sliding windows: three rows of different length, with rollbacks."""
    pair = endless(tiny_pair(family, tmp_path))
    prompts = ["a", PROMPT, PROMPT + " the lazy dog, and the dog does not mind"]
    requests = [
        Request(prompt=prompt, raw=True, method="speed", seed=seed, draft_length=k, max_new_tokens=12)
        for prompt, seed, k in zip(prompts, (0, 1, 2), (3, 5, 1), strict=True)
    ]
    runs = Engine(pair).generate(requests)
    for run in runs:
        steps = reference(pair, run, 12)
        # transformers' Gemma 2 takes its attention's softmax in float32, whatever the model's own precision.
        check_against_reference(pair, run, steps, tolerance=1e-6 if family == "gemma2" else 1e-9)
    assert 0 < sum(sum(run.accepted) for run in runs) < 36


@pytest.mark.parametrize("threshold", [0.0, 0.004])
def test_whatever_lengths_are_chosen_the_text_is_one(
    engine: Engine, threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 2 for draft_length="auto": by its own choice, and at lengths thrown by dice, with and without an early end."""
    monkeypatch.setattr("specviz.engine.round.THRESHOLD", threshold)
    requests = [Request(prompt=PROMPT, method=method, max_new_tokens=32) for method in PAPER]
    fixed = engine.generate([dataclasses.replace(request, draft_length=5) for request in requests])
    chosen = engine.generate(requests)
    dice = random.Random(0)

    def thrown_length(times: PassTimes, sequences: int) -> int:
        assert sequences <= len(requests)
        return dice.randint(1, MAX_DRAFT_LENGTH)

    monkeypatch.setattr("specviz.engine.batch.best_draft_length", thrown_length)
    for run, own, wild in zip(fixed, chosen, engine.generate(requests), strict=True):
        assert own.draft_length is None
        assert own.token_ids == run.token_ids == wild.token_ids
        assert own.accepted == run.accepted == wild.accepted
        assert run.method.endswith("_only") or len({round_.draft_length for round_ in wild.rounds}) > 2


def test_neighbours_do_not_show(engine: Engine) -> None:
    """Law 3."""
    wanted = Request(prompt=PROMPT, method="cascade_opt", seed=4, max_new_tokens=24, top_p=0.9, inspect=3)
    wanted = dataclasses.replace(wanted, repetition_penalty=1.2)
    alone = engine.generate(wanted)[0]
    others = [
        Request(
            prompt="x",
            method=method,
            seed=seed,
            temperature=0.5 * (seed % 4),
            draft_length=1 + seed,
            max_new_tokens=5 + 2 * seed,
            repetition_penalty=(1.0, 1.3, 0.8)[seed % 3],
            forbidden_tokens=[70, 71] * (seed % 2),
            inspect=seed % 3,
        )
        for seed, method in enumerate(PAPER)
    ]
    # Of the same method, but with other settings.
    others.append(Request(prompt="y", method="cascade_opt", lenience=1.5, top_k=9, max_new_tokens=20))
    for neighbours in (others[:1], others):
        assert [t.id for t in engine.generate([*neighbours, wanted])[-1].tokens] == alone.token_ids
    # Two rows only: the others wait, so this one joins late and rows move as they leave.
    runs = Engine(engine.pair, max_sequences=2).generate([*others, wanted, *others])
    assert runs[10].token_ids == alone.token_ids
    assert [run.token_ids for run in runs[:10]] == [run.token_ids for run in runs[11:]]
    for mine, other in zip(runs[10].tokens, alone.tokens, strict=True):
        assert mine.acceptance == pytest.approx(other.acceptance, abs=1e-9)
        assert [likely.id for likely in mine.top.pi] == [likely.id for likely in other.top.pi]
        for told, alone_told in zip(mine.what_if.flips, other.what_if.flips, strict=True):
            assert told == pytest.approx(alone_told, abs=1e-9)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_what_prompts_have_in_common_is_read_once(family: str, tmp_path: Path) -> None:
    """Law 3: texts are as if each had read all of its prompt; both models read the common part a single time."""
    pair = tiny_pair(family, tmp_path)
    common = list(range(40, 41 + SHORTEST))
    prompts = [[*common, 7, 8, 9], [*common, 7], common, [*common, 5, 6, 7, 8, 9, 10], common]
    requests = [
        Request(token_ids=ids, method=method, seed=seed, max_new_tokens=12, temperature=0.8)
        for seed, (ids, method) in enumerate(zip(prompts, ("speed", *BOTH), strict=False))
    ]
    alone = [Engine(pair).generate(request)[0] for request in requests]
    read = {"drafter": 0, "verifier": 0}

    def count(name: str):
        def hook(_module, _arguments, named):
            read[name] += named["input_ids"].numel()

        return hook

    hooks = [
        getattr(pair, name).base_model.register_forward_pre_hook(count(name), with_kwargs=True)
        for name in read
    ]
    batch = Engine(pair).stream(requests)
    try:
        for _ in requests:
            assert isinstance(next(batch), Started)
        # All but the last token of the shortest prompt is common to all; the rest is as wide as the longest has it.
        assert read == dict.fromkeys(read, SHORTEST + len(requests) * 6)
    finally:
        for hook in hooks:
            hook.remove()
    texts = {event.index: event.run.token_ids for event in batch if isinstance(event, Finished)}
    assert [texts[index] for index in range(len(requests))] == [run.token_ids for run in alone]


@pytest.mark.parametrize("method", ["drafter_only", "verifier_only", "cascade_tokenV3"])
def test_calls_are_rounds_not_tokens(pair: ModelPair, engine: Engine, method: str) -> None:
    counts = {"drafter": 0, "verifier": 0}

    def count(name: str):
        def hook(*_):
            counts[name] += 1

        return hook

    hooks = [getattr(pair, name).base_model.register_forward_hook(count(name)) for name in counts]
    try:
        run = one(engine, method=method, draft_length=4)
    finally:
        for hook in hooks:
            hook.remove()
    rule, rounds = METHODS[method], len(run.rounds)
    assert counts["verifier"] == (rounds + 1 if rule.verifies else 0)
    assert counts["drafter"] == (sum(r.draft_length for r in run.rounds) + 1 if rule.drafts else 0)
    assert run.verifier_calls == (rounds if rule.verifies else 0)
    assert run.drafter_calls == sum(len(r.proposals) for r in run.rounds)
    if method == "cascade_tokenV3":
        assert rounds < len(run.tokens)


def test_nothing_past_the_end(pair: ModelPair, engine: Engine) -> None:
    """Law 6: an end-of-sequence inside a block ends the text there, for every K, and is the last token."""
    base = one(Engine(endless(pair)), method="speed", draft_length=5, max_new_tokens=40)
    inside = next(r for r in base.rounds if r.accepted >= 3).tokens[1]
    first = base.token_ids.index(inside.id)
    ending = Engine(dataclasses.replace(pair, eos_token_ids=frozenset([inside.id])))
    for k in (1, 5, 16):
        run = one(ending, method="speed", draft_length=k, max_new_tokens=40)
        assert run.token_ids == base.token_ids[: first + 1]
        assert run.stop_reason == "eos"
        assert sum(r.examined for r in run.rounds) == len(run.tokens)


def test_a_full_context_ends_the_run(pair: ModelPair) -> None:
    """Law 6: nothing past the end."""
    small = dataclasses.replace(endless(pair), context_length=40)
    run = one(Engine(small), method="speed", max_new_tokens=500)
    assert len(run.prompt_ids) + len(run.tokens) == 40
    assert run.stop_reason == "context"


def test_a_prompt_that_is_read_in_pieces_is_followed_by_the_same_text(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(1, pair.vocabulary_size, (505,), generator=torch.Generator().manual_seed(0))
    engine = Engine(dataclasses.replace(endless(pair), context_length=512))
    request = Request(token_ids=ids.tolist(), method="speed", max_new_tokens=5)
    found = []
    for chunk in (512, 100):
        monkeypatch.setattr(model_runner, "_CPU_CHUNK", chunk)
        found += engine.generate(request)
    at_once, in_pieces = found
    assert in_pieces.token_ids == at_once.token_ids


def test_stop_ends_all_runs_within_a_round_and_says_so(engine: Engine) -> None:
    """Law 6: nothing past the end."""
    stop = threading.Event()
    requests = [Request(prompt=PROMPT, seed=seed, max_new_tokens=60, return_logits=True) for seed in range(3)]
    events = []
    for event in Engine(engine.pair, max_sequences=2).stream(requests, stop=stop):
        events.append(event)
        if isinstance(event, Decided) and event.index == 1:
            stop.set()
    finished = [event for event in events if isinstance(event, Finished)]
    assert sorted(event.index for event in finished) == [0, 1, 2]
    assert {event.run.stop_reason for event in finished} == {"cancelled"}
    assert sum(isinstance(event, Decided) for event in events) == 2
    whole = engine.generate(requests[0])[0]
    stopped = next(event.run for event in finished if event.index == 0)
    assert stopped.token_ids == whole.token_ids[: len(stopped.tokens)]
    for logits in (stopped.drafter_logits, stopped.verifier_logits):  # law 7, however a run ends
        assert len(logits) == len(stopped.tokens) > 0


def test_events_come_as_things_happen(engine: Engine) -> None:
    events = list(
        engine.stream([Request(prompt=PROMPT, max_new_tokens=9), Request(prompt="b", max_new_tokens=2)])
    )
    for index in (0, 1):
        own = [event for event in events if event.index == index]
        assert isinstance(own[0], Started)
        assert all(isinstance(event, Decided) for event in own[1:-1])
        assert isinstance(own[-1], Finished)
        assert [event.round for event in own[1:-1]] == own[-1].run.rounds


def test_forbidden_tokens_are_never_drafted_nor_emitted(engine: Engine) -> None:
    free = one(engine, method="speed", seed=2)
    forbidden = list(dict.fromkeys(free.token_ids))[:5]
    run = one(engine, method="speed", seed=2, forbidden_tokens=forbidden, inspect=20)
    seen = set(run.token_ids) | {p.id for r in run.rounds for p in r.proposals}
    seen |= {likely.id for t in run.tokens for side in (t.top.q, t.top.p, t.top.pi) for likely in side}
    assert not seen & set(forbidden)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"forbidden_tokens": ["jumps over the"]}, "tokens; each must be exactly one"),
        ({"forbidden_tokens": [""]}, "is 0 tokens"),
        ({"forbidden_tokens": [10**6]}, "ids run from 0 to"),
        ({"forbidden_tokens": [-1]}, "is no id"),
        ({"token_ids": [1, 10**6]}, "is no id of this pair"),
        ({"prompt": PROMPT * 200}, r"The prompt has \d+ tokens; this pair's context holds"),
    ],
)
def test_what_does_not_fit_the_pair_is_refused_at_once(
    engine: Engine, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        engine.stream(Request(**({"prompt": PROMPT} if "token_ids" not in settings else {}) | settings))


def test_messages_need_a_chat_model(engine: Engine, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hello"}]
    with pytest.raises(RequestError, match="no chat template"):
        engine.stream(Request(messages=messages))
    chat = Engine(tiny_pair("llama", tmp_path, chat=True))
    by_messages, by_prompt, raw = chat.generate(
        [
            Request(max_new_tokens=8, **more)
            for more in ({"messages": messages}, {"prompt": "hello"}, {"prompt": "hello", "raw": True})
        ]
    )
    assert by_messages.token_ids == by_prompt.token_ids
    assert len(raw.prompt_ids) < len(by_prompt.prompt_ids)


def test_inspection_is_the_top_of_all_three_distributions(pair: ModelPair, engine: Engine) -> None:
    run = one(engine, method="cascade_tokenV3", temperature=0.8, inspect=4, return_logits=True)
    assert run.drafter_logits.shape == run.verifier_logits.shape == (len(run.tokens), pair.vocabulary_size)
    for index, token in enumerate(run.tokens):
        for side, logits in ((token.top.q, run.drafter_logits), (token.top.p, run.verifier_logits)):
            expected = distribution(logits[index], 0.8).topk(4)
            assert [likely.id for likely in side] == expected.indices.tolist()
            assert [likely.probability for likely in side] == pytest.approx(
                expected.values.tolist(), abs=1e-9
            )
        assert len(token.top.pi) == 4
    greedy = one(engine, temperature=0, inspect=2, return_logits=True)
    for index, token in enumerate(
        greedy.tokens
    ):  # one-hot at temperature 0, so those of temperature 1 are told
        for side, logits in ((token.top.q, greedy.drafter_logits), (token.top.p, greedy.verifier_logits)):
            expected = distribution(logits[index], 1.0).topk(2)
            assert [likely.id for likely in side] == expected.indices.tolist()
        assert [likely.probability for likely in token.top.pi] == [1.0]
    plain = one(engine, inspect=0)
    assert (plain.alternatives, plain.tokens[0].top, plain.tokens[0].what_if) == ([], None, None)
    assert one(engine, method="drafter_only", inspect=2).tokens[0].top.p is None
    assert one(engine, method="verifier_only", inspect=2).tokens[0].top.q is None


def test_the_last_proposal_is_drafted_only_where_all_before_it_were_accepted(engine: Engine) -> None:
    """Whoever sits beside; and what was drafted is what the trace says, K what was planned."""
    common: dict[str, Any] = {"prompt": PROMPT, "max_new_tokens": 24}
    requests = [
        Request(**common, method=method, seed=k, draft_length=k) for method in BOTH for k in (1, 2, 3, 5, 8)
    ]
    unused = 0
    for request, run in [
        *zip(requests, engine.generate(requests), strict=True),
        (requests[3], engine.generate(requests[3])[0]),
    ]:
        left = 24
        for round_ in run.rounds:
            assert round_.draft_length == min(request.draft_length, left)
            all_but_one = max(1, round_.draft_length - 1)
            passed = round_.accepted >= all_but_one
            assert len(round_.proposals) == (round_.draft_length if passed else all_but_one)
            unused += round_.draft_length - len(round_.proposals)
            left -= len(round_.tokens)
    assert unused
    [drafted] = engine.generate(Request(**common, method="drafter_only", draft_length=4))
    assert drafted.metrics().draft_utilisation is None
    assert all(len(round_.proposals) == round_.draft_length for round_ in drafted.rounds)


def test_out_of_memory_is_a_sentence_and_the_next_run_works(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(pair)
    before = one(engine).token_ids
    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise torch.OutOfMemoryError("CUDA out of memory")

        patch.setattr(pair.verifier, "forward", fail)
        with pytest.raises(EngineError, match="Memory ran out with 1 request"):
            one(engine)
    assert one(engine).token_ids == before


def test_numbers_that_are_not_finite_are_a_sentence(tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path)
    with torch.no_grad():
        pair.verifier.get_output_embeddings().weight[3] = float("nan")
    with pytest.raises(EngineError, match="not finite"):
        one(Engine(pair))


# ---- rules of one's own -----------------------------------------------------------------------------------


def asked(method: str, seed: int, heat: float, **more: object) -> Request:
    return Request(prompt="The quick", method=method, seed=seed, temperature=heat, max_new_tokens=16, **more)


def test_two_rules_of_one_s_own_in_a_batch_stay_apart(engine: Engine) -> None:
    """Law 3: sequences of one method share a decision only if they share its rule."""
    requests = [asked(OWN_RULE, 1, 1.0, rule=rule) for rule in ("q(v) >= 0", "q(v) < 0", "p1(v) > 0.01")]
    together = engine.generate(requests)
    assert [run.token_ids for run in together] == [engine.generate(each)[0].token_ids for each in requests]
    assert all(together[0].accepted)
    assert together[0].token_ids != together[1].token_ids


def test_what_is_not_known_of_a_rule_of_one_s_own_is_not_said(engine: Engine) -> None:
    run = engine.generate(asked(OWN_RULE, 1, 1.0, rule="p1(v) > a * max p1", inspect=3))[0]
    assert all(token.what_if.flips[-1] is None for token in run.tokens)
    assert run.alternatives[-1].method == OWN_RULE
    fixed = engine.generate(asked(OWN_RULE, 1, 1.0, rule="p1(v) > 0.5 * max p1", inspect=3, lenience=0))[0]
    assert all(token.what_if.flips[-1] == [] for token in fixed.tokens)  # there is no lenience in it


# ---- a pair that generates -------------------------------------------------------------------------------


def test_one_prompt_gives_one_run_and_a_list_of_them_a_list(tmp_path: Path) -> None:
    pair, chat = tiny_pair("llama", tmp_path, chat=True), [{"role": "user", "content": "hello"}]
    asked: dict[str, Any] = {"max_new_tokens": 4, "seed": 3}
    alone: dict[str, Any] = {
        str(prompt): pair.generate(prompt, **asked) for prompt in ("hello", "world", chat)
    }
    for prompts in (["hello", "world"], [chat, chat], ["hello", chat], ["one"], []):
        runs: Any = pair.generate(prompts, **asked)
        assert len(runs) == len(prompts)
        for prompt, run in zip(prompts, runs, strict=True):
            assert run.prompt_ids == alone.get(str(prompt), run).prompt_ids


def test_a_gpus_memory_bounds_how_many_are_admitted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, request = TokenLabels(engine.pair.tokenizer), Request(prompt="hello", max_new_tokens=8)
    waiting = [Sequence(index, request, engine.pair, labels) for index in range(4)]
    batch = Batch(engine.pair)
    monkeypatch.setattr(batch, "_gpu", torch.device("cuda"))

    def admitted(spare: int) -> int:
        monkeypatch.setattr("specviz.engine.batch.spare_memory", lambda _: spare)
        return batch.room_for(waiting)

    counts = [admitted(int(1.1**power)) for power in range(250)]
    assert counts == sorted(counts)
    assert set(counts) == {1, 2, 3, 4}, "one is admitted into an empty batch, whatever the memory"
    batch.sequences = waiting[:1]
    assert (admitted(0), admitted(1 << 40)) == (0, 4)


def test_sequences_that_cannot_join_leave_no_slot_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = TokenLabels(engine.pair.tokenizer)
    batches = []
    for _ in range(2):
        batches.append(Batch(engine.pair, apart=True))
        for _ in batches[-1].read([Sequence(0, Request(prompt="hello"), engine.pair, labels)]):
            pass
    batch, other = batches

    def fail(_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(batch._verifier, "merge", fail)
    with pytest.raises(MemoryError):
        batch.take(other)
    assert [len(each.owners) for each in (batch._drafter, batch._verifier)] == [1, 1]
    assert batch.step()


def test_a_pair_of_two_folders_is_loaded_and_writes(tmp_path: Path) -> None:
    tiny_pair("llama", tmp_path)
    small, large = (HubSource(str(tmp_path / each)) for each in ("drafter", "verifier"))
    spec = PairSpec("mine", "Mine", small, large, "Small", "Large", 0, 0, "")
    runs = load_pair(spec, "cpu", "float64").generate(["hello", "world"], max_new_tokens=3)
    assert [len(run.token_ids) for run in runs] == [3, 3]


def test_a_stop_while_the_prompt_is_read_ends_the_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    monkeypatch.setattr(model_runner.ModelRunner, "read", lambda *_, **__: stop.set())
    [run] = engine.generate(Request(prompt=PROMPT), stop=stop)
    assert (run.stop_reason, run.token_ids) == ("cancelled", [])


def test_captured_passes_are_freed_where_there_are_any(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not Batch(engine.pair).free_captures()
    monkeypatch.setattr(type(engine.pair.verifier_model), "free_memory", lambda _: True)
    assert Batch(engine.pair).free_captures()
