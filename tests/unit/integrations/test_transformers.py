"""`generate(custom_generate=cascade_generate)` compared with transformers' `generate` and with the engine."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from transformers import (
    DynamicCache,
    GenerationConfig,
    MaxTimeCriteria,
    StoppingCriteria,
    StopStringCriteria,
    T5Config,
    T5ForConditionalGeneration,
)

import specviz
from specviz.engine.engine import Engine
from specviz.errors import PairError, RequestError
from specviz.models.pair import pair_from_models
from specviz.schema.settings import Request
from tests.support.tiny import tiny_model, tiny_tokenizer

NEW = 24
COUNTS_PADDING = Version(transformers.__version__) < Version("5.23")
"""Whether `generate` has a repetition penalty for the padding token too, where a prompt has padding."""


def models(family: str, directory: Path, verifier_padding: int = 0, eos: Any = 0) -> Any:
    """A drafter with a padded vocabulary, a verifier, their tokenizer, and three prompts of different lengths."""
    # In float64, transformers' Gemma 2 gives NaN for a row that begins with padding.
    dtype = torch.float32 if family == "gemma2" else torch.float64
    tokenizer = tiny_tokenizer(directory / "tokenizer")
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    real = len(tokenizer)
    drafter, verifier = (
        tiny_model(
            family,
            real + padding,
            seed,
            directory / str(seed),
            layers=seed,
            dtype=dtype,
            eos_token_id=list(eos) if isinstance(eos, tuple) else eos,
        )
        for seed, padding in ((1, 3), (2, verifier_padding))
    )
    for model in (drafter, verifier):
        model.get_output_embeddings().weight.data[real:] = 0
    prompts = ["a", "The quick brown fox jumps over", "def add(a, b):"]
    inputs = dict(tokenizer(prompts, return_tensors="pt", padding=True))
    inputs.pop("token_type_ids", None)
    return SimpleNamespace(drafter=drafter, verifier=verifier, tokenizer=tokenizer, inputs=inputs)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Models by family and EOS ids; each is made when it is first asked for."""

    @cache
    def of(family: str = "llama", **options: Any) -> Any:
        return models(family, tmp_path_factory.mktemp(family), **options)

    return of


@pytest.fixture
def llama(made: Callable[..., Any]) -> Any:
    return made()


def plain(them: Any, **options: Any) -> Any:
    """The sequences of transformers' own `generate`."""
    return them.verifier.generate(
        **{**them.inputs, "max_new_tokens": NEW, "pad_token_id": 0, "do_sample": False} | options
    )


def cascade(them: Any, **options: Any) -> Any:
    """The sequences of a cascade with the same arguments."""
    return plain(them, **{"custom_generate": specviz.cascade_generate, "drafter": them.drafter} | options)


def by_engine(them: Any, **options: Any) -> list[list[int]]:
    """The engine's new ids, sequence n with seed + n."""
    pair = pair_from_models(them.drafter, them.verifier, them.tokenizer)
    options = {"seed": 5, "max_new_tokens": NEW} | options
    seed = options.pop("seed")
    rows = zip(them.inputs["input_ids"], them.inputs["attention_mask"].bool(), strict=True)
    asked = [
        Request(token_ids=ids[own].tolist(), seed=seed + n, **options) for n, (ids, own) in enumerate(rows)
    ]
    return [run.token_ids for run in Engine(pair).generate(asked)]


def new_ids(them: Any, sequences: torch.Tensor, padding: int = 0) -> list[list[int]]:
    """The new ids of every sequence up to its end; asserts that only padding follows."""
    found = []
    for row in sequences[:, them.inputs["input_ids"].shape[1] :].tolist():
        length = row.index(0) + 1 if 0 in row else len(row)
        assert set(row[length:]) <= {padding}
        found.append(row[:length])
    return found


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_greedy_lossless_text_is_plain_generates(family: str, made: Callable[..., Any]) -> None:
    """Law 5: at temperature 0 a lossless method gives the sequences of greedy `generate`, padding and all."""
    them = made(family, verifier_padding=7)
    assert torch.equal(cascade(them, method="speed"), plain(them))


@pytest.mark.parametrize(("eos", "pad"), [((0, 1, 2, 5, 7, 9, 40), 3), (None, None)], ids=str)
def test_ends_and_padding_are_plain_generates(eos: Any, pad: int | None, made: Callable[..., Any]) -> None:
    """Law 6: sequences end at any of several EOS ids, and are padded as in transformers."""
    them = made(eos=eos)
    own = plain(them, pad_token_id=pad)
    assert torch.equal(cascade(them, method="speed", pad_token_id=pad), own)
    several = [int(it) for it in own[:, -14]]  # ids that come soon, and at places of their own
    options = {"eos_token_id": several, "pad_token_id": pad}
    assert torch.equal(cascade(them, method="speed", **options), plain(them, **options))


@pytest.mark.parametrize(
    ("method", "lenience", "sampling"),
    [
        ("cascade_opt", 0.3, {"temperature": 0.7, "top_k": 20}),
        ("speed", 0.2, {"temperature": 1.3, "top_p": 0.8}),
        ("cascade_diff", 0.1, {"top_k": 0, "min_p": 0.05}),
    ],
)
def test_text_is_the_engines(llama: Any, method: str, lenience: float, sampling: dict[str, Any]) -> None:
    """Settings mean what they mean in a Request; sequence n has the uniforms of seed + n; without do_sample it is greedy."""
    options = {"method": method, "lenience": lenience}
    sequences = cascade(llama, do_sample=True, seed=5, **options, **{"top_k": 0} | sampling)
    assert new_ids(llama, sequences) == by_engine(llama, **options, **{"temperature": 1.0} | sampling)
    greedy = cascade(llama, **options, draft_length=3)
    assert new_ids(llama, greedy) == by_engine(llama, **options, temperature=0.0)


def test_each_sequence_is_as_if_alone(llama: Any) -> None:
    """Laws 2 and 3: it depends on neither padding nor batch; num_return_sequences counts on with the seeds."""
    options: dict[str, Any] = {"do_sample": True, "max_new_tokens": 6}
    together = cascade(llama, seed=7, num_return_sequences=2, **options)
    assert len(together) == 6
    for number, row in enumerate(new_ids(llama, together)):
        own = llama.inputs["attention_mask"][number // 2].bool()
        ids = llama.inputs["input_ids"][number // 2][own][None]
        alone = cascade(llama, seed=7 + number, input_ids=ids, attention_mask=None, **options)
        assert alone[0, ids.shape[1] :].tolist() == row


def test_without_a_seed_torch_decides(llama: Any) -> None:
    """Sampling follows torch.manual_seed; greedy decoding leaves torch's generator as it was."""
    options: dict[str, Any] = {"do_sample": True, "max_new_tokens": 8}
    torch.manual_seed(3)
    first, second = cascade(llama, **options), cascade(llama, **options)
    torch.manual_seed(3)
    assert torch.equal(first, cascade(llama, **options))
    assert not torch.equal(first, second)
    before = torch.get_rng_state()
    cascade(llama, max_new_tokens=2)
    assert torch.equal(before, torch.get_rng_state())


class Ids(StoppingCriteria):
    """Ends a sequence at one of some ids, and keeps what it was called with."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = torch.tensor(ids)
        self.shown: list[Any] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        assert scores is None
        self.shown.append(input_ids.tolist())
        return torch.isin(input_ids[:, -1], self.ids)


def a_stop_text(them: Any) -> StopStringCriteria:
    """Two tokens from the middle of the last sequence."""
    row = plain(them)[-1]
    return StopStringCriteria(them.tokenizer, [them.tokenizer.decode(row[-15:-13])])


CRITERIA: dict[str, Callable[[Any], Any]] = {
    "text": a_stop_text,
    "own": lambda them: Ids(plain(them)[:, -18].tolist()),
    "time": lambda them: MaxTimeCriteria(0.0),
}


@pytest.mark.parametrize(("kind", "eos", "rows"), [("text", None, 3), ("own", None, 1), ("time", 0, 3)])
def test_stopping_criteria_end_what_they_end_in_plain_generate(
    kind: str, eos: int | None, rows: int, made: Callable[..., Any]
) -> None:
    """Nothing follows the token at which all sequences are stopped; they are padded only if there are EOS ids."""
    them = copy(made(eos=eos))
    them.inputs = {name: values[-rows:] for name, values in them.inputs.items()}
    theirs, ours = CRITERIA[kind](them), CRITERIA[kind](them)
    own = plain(them, stopping_criteria=[theirs])
    assert torch.equal(cascade(them, method="speed", draft_length=16, stopping_criteria=[ours]), own)
    if kind == "own":
        assert ours.shown == theirs.shown, "a criterion sees the batch after each new column"
    goes_on = kind == "text" and eos is None and rows == 3  # no other row comes to that text
    assert torch.equal(own, plain(them)) is goes_on


class Record:
    """A streamer that records its calls, and after how many of the drafter's passes each came."""

    def __init__(self) -> None:
        self.seen, self.passes, self.after = list[Any](), 0, list[int]()

    def count(self, *_: Any) -> None:
        self.passes += 1

    def put(self, value: torch.Tensor) -> None:
        self.seen.append(value.tolist())
        self.after.append(self.passes)

    def end(self) -> None:
        self.seen.append("end")


def test_streamers_get_what_plain_generate_gives_them_while_it_is_written(llama: Any) -> None:
    """The prompts, then one position after another, then the end."""
    theirs, ours = Record(), Record()
    plain(llama, streamer=theirs)
    hook = llama.drafter.register_forward_pre_hook(ours.count)
    cascade(llama, method="speed", streamer=ours)
    hook.remove()
    assert ours.seen == theirs.seen
    assert len({*ours.after}) > NEW // 5


def test_the_models_are_left_as_they_were(llama: Any) -> None:
    """Weights, requires_grad, attention and mode are unchanged."""

    def state() -> list[Any]:
        both = (llama.drafter, llama.verifier)
        weights = [it for model in both for it in (*model.parameters(), *model.buffers())]
        modes = [(model.training, model.config._attn_implementation) for model in both]
        return [(it.data_ptr(), it.requires_grad, it.sum().item()) for it in weights] + modes

    before = state()
    cascade(llama, max_new_tokens=2)
    assert state() == before


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no drafter": ({"drafter": None}, "drafter="),
    "an adapter": ({"drafter": type("PeftModel", (torch.nn.Module,), {})()}, "merge_and_unload"),
    "beams": ({"num_beams": 2}, "beam search"),
    "scores": ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
    "ngrams": ({"no_repeat_ngram_size": 3}, "NoRepeatNGramLogitsProcessor"),
    "words of several tokens": ({"bad_words_ids": [[5], [6, 7]]}, "single tokens only"),
    "unknown inputs": ({"num_items_in_batch": 1}, "num_items_in_batch"),
    "a cache": ({"past_key_values": DynamicCache()}, "past_key_values|cache"),
    "length": ({"max_new_tokens": 600}, "max_new_tokens"),
    "positions": ({"position_ids": torch.arange(3, 26).expand(3, -1)}, "position_ids"),
    "all padding": ({"attention_mask": torch.zeros(3, 23, dtype=torch.long)}, "attention_mask"),
    "padding on the right": ({"attention_mask": torch.ones(3, 23).tril(9)}, "padding_side"),
    "a narrower mask": ({"attention_mask": 1 - torch.eye(3, 20, dtype=torch.long)}, "attention_mask"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_arguments_are_refused(what: str, llama: Any) -> None:
    """Nothing is ignored silently."""
    options, words = REFUSED[what]
    with pytest.raises(RequestError, match=words):
        cascade(llama, **options)


def test_unfit_models_are_refused(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder, and attention without custom masks."""
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    encoder = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))
    with pytest.raises(PairError, match="type t5 have an encoder"):
        cascade(llama, drafter=encoder)
    monkeypatch.setattr(llama.drafter.config, "_attn_implementation_internal", "flash_attention_2")
    with pytest.raises(PairError, match="flash_attention_2"):
        cascade(llama)


FIELDS: dict[str, Any] = {
    "min_new_tokens": 6,
    "use_mtp": True,
    "use_cache": False,
    "cache_implementation": "static",
    "temperature": 0.5,
    "bad_words_ids": [[5], [9]],
    "renormalize_logits": True,
    "suppress_tokens": list(range(0, 200, 2)),
    "sequence_bias": {(5,): 3.0},
    "guidance_scale": 2.0,
    "output_hidden_states": True,
    "assistant_early_exit": 1,
    "speculation_type": "dflash",
    "dola_layers": "high",
}
"""Values other than the defaults, for fields that no other test has."""


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_refused_or_means_what_it_means_in_generate(name: str, llama: Any) -> None:
    """Nothing is ignored silently: greedy sequences are the same, or a sentence says what to leave out."""
    options = {"max_new_tokens": 8, name: FIELDS[name]}
    try:
        ours = cascade(llama, method="speed", **options)
    except RequestError:
        return
    assert torch.equal(ours, plain(llama, **options))


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_length": 30, "max_new_tokens": None},  # counts padding
        {"generation_config": GenerationConfig(max_new_tokens=9, pad_token_id=3, eos_token_id=7)},
        {"return_dict_in_generate": True, "max_new_tokens": 6},
        {"suppress_tokens": [-1, 5, 10_000]},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_arguments_mean_what_they_mean_in_generate(arguments: dict[str, Any], llama: Any) -> None:
    """Laws 5 and 6."""
    ours, theirs = cascade(llama, method="speed", **arguments), plain(llama, **arguments)
    assert type(ours) is type(theirs)
    if "return_dict_in_generate" in arguments:
        ours, theirs = ours.sequences, theirs.sequences
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("where", ["argument", "the model's config"])
def test_a_repetition_penalty_is_plain_generates(
    where: str, made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 5: it counts prompt and text without padding, as an argument or from the verifier's generation config."""
    them = copy(made("qwen2"))
    together, them.inputs = them.inputs, {name: values[1:2] for name, values in them.inputs.items()}
    for penalty, method in ((1.05, "speed"), (0.7, "verifier_only")):
        options = {"max_new_tokens": 12} | ({"repetition_penalty": penalty} if where == "argument" else {})
        if where != "argument":
            monkeypatch.setattr(them.verifier.generation_config, "repetition_penalty", penalty)
        own = plain(them, **options)
        assert torch.equal(cascade(them, method=method, **options), own)
    if COUNTS_PADDING:
        with pytest.raises(RequestError, match="without padding"):
            cascade(them, **options, **together)
    else:
        found = cascade(them, method="speed", **options, **together)
        assert torch.equal(found, plain(them, **options, **together))
    without = {"max_new_tokens": 12, "repetition_penalty": 1.0}  # the caller's, over the config's
    unpenalised = plain(them, **without)
    assert not torch.equal(own, unpenalised)
    assert torch.equal(cascade(them, method="speed", **without), unpenalised)


@pytest.mark.parametrize("wrap", [partial(torch.compile, backend="eager"), torch.nn.DataParallel])
def test_a_wrapped_drafter_is_unwrapped(wrap: Callable[..., Any], llama: Any) -> None:
    wrapped = cascade(llama, drafter=wrap(llama.drafter), max_new_tokens=8)
    assert torch.equal(wrapped, cascade(llama, max_new_tokens=8))
