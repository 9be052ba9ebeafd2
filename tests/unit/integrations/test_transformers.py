"""`generate(custom_generate=cascade_generate)` beside transformers' own `generate`, and beside the engine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    MaxTimeCriteria,
    StoppingCriteria,
    StopStringCriteria,
    T5Config,
    T5ForConditionalGeneration,
    TextIteratorStreamer,
)
from transformers.generation.logits_process import (
    LogitNormalization,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.utils import GenerateDecoderOnlyOutput

import specviz
from specviz.core.sampling import distribution
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Event, Finished
from specviz.errors import RequestError
from specviz.integrations import transformers as custom_generation
from specviz.models.pair import pair_from_models
from specviz.schema.settings import Request
from tests.support.tiny import tiny_model, tiny_tokenizer

NEW = 40
LOSSLESS = ("speed", "verifier_only")


def models(family: str, directory: Path, verifier_padding: int = 0, eos: int | list[int] | None = 0) -> Any:
    """A drafter and a verifier of one tokenizer, the drafter's vocabulary padded, and three prompts of their own lengths."""
    # In double precision transformers' Gemma 2 makes no numbers of a row that begins with padding.
    dtype = torch.float32 if family == "gemma2" else torch.float64
    tokenizer = tiny_tokenizer(directory / "tokenizer")
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    real = len(tokenizer)
    drafter, verifier = (
        tiny_model(
            family, real + padding, seed, directory / str(seed), layers=seed, dtype=dtype, eos_token_id=eos
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
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return models("llama", tmp_path_factory.mktemp("models"))


def plain(them: Any, **options: Any) -> Any:
    """What transformers itself writes."""
    return them.verifier.generate(
        **{**them.inputs, "max_new_tokens": NEW, "pad_token_id": 0, "do_sample": False} | options
    )


def cascade(them: Any, **options: Any) -> Any:
    """What a cascade writes, asked in the same way."""
    return plain(them, **{"custom_generate": specviz.cascade_generate, "drafter": them.drafter} | options)


def by_engine(them: Any, **options: Any) -> list[list[int]]:
    """The new ids of all sequences, sequence n with the coins of seed + n."""
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


@pytest.mark.parametrize("method", LOSSLESS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "gpt2"])
def test_greedy_lossless_text_is_plain_generates(family: str, method: str, tmp_path: Path) -> None:
    """Law 5: at temperature 0 a lossless method gives the sequences of greedy `generate`, padding and all."""
    them = models(family, tmp_path, verifier_padding=7)
    assert torch.equal(cascade(them, method=method), plain(them))


def test_ids_that_only_the_verifier_has_are_written(tmp_path: Path) -> None:
    """Law 5: the verifier has twenty ids more than the drafter, which score high."""
    them = models("llama", tmp_path, verifier_padding=23)
    head = them.verifier.get_output_embeddings().weight.data
    head[-20:] = 1.01 * head[100:120]
    wanted = plain(them)
    assert (wanted >= them.drafter.config.vocab_size).any()
    assert torch.equal(cascade(them, method="speed", lenience=0.0), wanted)


@pytest.mark.parametrize(
    ("eos", "pad"), [(0, 3), ([0, 1, 2, 5, 7, 9, 40], 3), (None, None), (None, 3)], ids=str
)
def test_ends_and_padding_are_plain_generates(eos: Any, pad: int | None, tmp_path: Path) -> None:
    """Law 6: sequences end at any of several EOS ids, and are padded as in transformers."""
    them = models("llama", tmp_path, eos=eos)
    own = plain(them, pad_token_id=pad)
    assert torch.equal(cascade(them, method="speed", pad_token_id=pad), own)
    several = [int(it) for it in own[:, -30]]  # ids that come soon, and at places of their own
    options = {"eos_token_id": several, "pad_token_id": pad}
    assert torch.equal(cascade(them, method="speed", **options), plain(them, **options))


@pytest.mark.parametrize("options", [{"max_new_tokens": 1}, {"max_new_tokens": None, "max_length": 30}, {}])
def test_lengths_are_plain_generates(llama: Any, options: dict[str, Any]) -> None:
    """Law 6: max_new_tokens and max_length count as they do in transformers, padding included."""
    assert torch.equal(cascade(llama, method="speed", **options), plain(llama, **options))


@pytest.mark.parametrize(
    ("method", "lenience", "warp"),
    [
        ("cascade_tokenV3", None, {}),
        ("cascade_opt", 0.3, {"temperature": 0.7, "top_k": 20}),
        ("speed", 0.2, {"temperature": 1.3, "top_p": 0.8}),
        ("drafter_only", None, {"top_k": 30, "top_p": 0.9}),
        ("cascade_diff", 0.1, {"min_p": 0.05}),
        ("verifier_only", None, {}),
    ],
)
def test_sampled_text_is_the_engines(llama: Any, method: str, lenience: float | None, warp: Any) -> None:
    """Settings mean what they mean in a Request; sequence n has the coins of seed + n."""
    options = {"method": method, "lenience": lenience}
    sequences = cascade(llama, do_sample=True, seed=5, **options, **{"top_k": 0} | warp)
    assert new_ids(llama, sequences) == by_engine(llama, **options, **{"temperature": 1.0} | warp)


def test_greedy_cascade_is_the_engines(llama: Any) -> None:
    """Without do_sample the temperature is 0, whatever the other settings are."""
    sequences = cascade(llama, method="cascade_chow", lenience=0.6, draft_length=3)
    assert new_ids(llama, sequences) == by_engine(
        llama, method="cascade_chow", lenience=0.6, temperature=0.0, top_k=3
    )


def test_each_sequence_is_as_if_alone(llama: Any) -> None:
    """A sequence depends on neither padding nor batch."""
    together = new_ids(llama, cascade(llama, do_sample=True, seed=7))
    for number, row in enumerate(together):
        own = llama.inputs["attention_mask"][number].bool()
        ids = llama.inputs["input_ids"][number][own][None]
        alone = cascade(llama, do_sample=True, seed=7 + number, input_ids=ids, attention_mask=None)
        assert alone[0, ids.shape[1] :].tolist() == row


def test_several_sequences_for_a_prompt_differ_in_their_coins(llama: Any) -> None:
    """num_return_sequences gives every prompt several sequences, each with its own coins."""
    sequences = cascade(llama, do_sample=True, seed=1, num_return_sequences=2)
    assert len(sequences) == 6
    assert not torch.equal(sequences[2], sequences[3])
    own = llama.inputs["input_ids"][1:2]
    alone = cascade(llama, do_sample=True, seed=4, input_ids=own, attention_mask=None)
    length = alone.shape[1]
    assert torch.equal(sequences[3, :length], alone[0])


def test_without_a_seed_torch_decides(llama: Any) -> None:
    """Sampling follows torch.manual_seed; greedy decoding leaves torch's generator as it was."""
    torch.manual_seed(3)
    first, second = cascade(llama, do_sample=True), cascade(llama, do_sample=True)
    torch.manual_seed(3)
    assert torch.equal(first, cascade(llama, do_sample=True))
    assert not torch.equal(first, second)
    before = torch.get_rng_state()
    cascade(llama)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 7, 400])
@pytest.mark.parametrize("top_p", [0.05, 0.6, 0.97, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 0.5])
def test_warped_probabilities_are_transformers_own(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Temperature, then top-k, then top-p, then min-p leave the probabilities that transformers' processors leave."""
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(50, 300, generator=generator, dtype=torch.float64)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    if min_p > 0:
        warpers.append(MinPLogitsWarper(min_p))
    theirs = warpers(torch.zeros(50, 1), logits).softmax(-1)
    asked = custom_generation._warp(LogitsProcessorList([*warpers, LogitNormalization()]), samples=True)
    ours = distribution(logits, **asked)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


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
    """Two tokens that come in the middle of what is written."""
    row = plain(them)[-1]
    return StopStringCriteria(them.tokenizer, [them.tokenizer.decode(row[-31:-29])])


CRITERIA: dict[str, Callable[[Any], Any]] = {
    "text": a_stop_text,
    "own": lambda them: Ids(plain(them)[:, -34].tolist()),
    "time": lambda them: MaxTimeCriteria(0.0),
}


@pytest.mark.parametrize(("eos", "rows"), [(0, 3), (None, 1), (None, 3)])
@pytest.mark.parametrize("kind", CRITERIA)
def test_stopping_criteria_end_what_they_end_in_plain_generate(
    kind: str, eos: int | None, rows: int, tmp_path: Path
) -> None:
    """Nothing follows the first token at which all sequences are stopped; they are padded only if there are EOS ids."""
    them = models("llama", tmp_path, eos=eos)
    them.inputs = {name: values[-rows:] for name, values in them.inputs.items()}
    own = plain(them, stopping_criteria=[CRITERIA[kind](them)])
    sequences = cascade(them, method="speed", draft_length=16, stopping_criteria=[CRITERIA[kind](them)])
    assert torch.equal(sequences, own)
    goes_on = kind == "text" and eos is None and rows == 3  # no other row comes to that text
    assert torch.equal(own, plain(them)) is goes_on


def test_criteria_see_every_column(llama: Any) -> None:
    """A criterion is shown the batch after each new column, exactly as transformers shows it."""
    ids = plain(llama)[:, -34].tolist()
    theirs, ours = Ids(ids), Ids(ids)
    plain(llama, stopping_criteria=[theirs])
    cascade(llama, method="speed", stopping_criteria=[ours])
    assert ours.shown == theirs.shown


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The engine's events in order; a test may add to them."""
    seen: list[Any] = []

    class Watched(Engine):
        def _serve(self, *args: Any) -> Iterator[Event]:
            for event in super()._serve(*args):
                seen.append((type(event), event.index))
                yield event

    monkeypatch.setattr(custom_generation, "Engine", Watched)
    return seen


def test_a_stopped_sequence_costs_no_further_step(llama: Any, watched: list[Any]) -> None:
    """A sequence that a criterion ended leaves the batch while the others go on."""
    ids = [int(plain(llama)[1, llama.inputs["input_ids"].shape[1]])]
    sequences = cascade(llama, method="speed", stopping_criteria=[Ids(ids)], draft_length=2)
    width = sequences.shape[1] - llama.inputs["input_ids"].shape[1]
    rounds = [watched.count((Decided, index)) for index in range(3)]
    assert width == NEW
    assert rounds[1] <= 2 < NEW // 2 <= max(rounds)
    assert watched.count((Finished, 1)) == 1


class Record:
    """A streamer that writes down what it gets."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def put(self, value: torch.Tensor) -> None:
        self.seen.append(("put", value.tolist()))

    def end(self) -> None:
        self.seen.append("end")


@pytest.mark.parametrize("rows", [1, 3])
def test_streamers_get_what_plain_generate_gives_them(llama: Any, rows: int) -> None:
    """The prompts first, then one position after another, then the end, once."""
    inputs = {name: values[-rows:] for name, values in llama.inputs.items()}
    theirs, ours = Record([]), Record([])
    plain(llama, streamer=theirs, **inputs)
    cascade(llama, method="speed", streamer=ours, **inputs)
    assert ours.seen == theirs.seen
    assert ours.seen[0] == ("put", inputs["input_ids"].tolist())


def test_tokens_are_streamed_as_they_are_decided(llama: Any, watched: list[Any]) -> None:
    """All tokens of a step are streamed before the next step begins."""
    inputs = {name: values[1:2] for name, values in llama.inputs.items()}
    cascade(llama, streamer=Record(watched), **inputs)
    rounds = [number for number, what in enumerate(watched) if what == (Decided, 0)]
    assert len(rounds) > 2
    assert all(watched[number + 1][0] == "put" for number in rounds)


def test_a_text_streamer_gives_the_text(llama: Any) -> None:
    """TextIteratorStreamer, in a thread of its own, comes to the text of the sequence."""
    inputs = {name: values[1:2] for name, values in llama.inputs.items()}
    streamer = TextIteratorStreamer(llama.tokenizer, skip_prompt=True, timeout=60, skip_special_tokens=True)
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(cascade(llama, streamer=streamer, **inputs)))
    thread.start()
    text = "".join(streamer)
    thread.join()
    new = found[0][0, inputs["input_ids"].shape[1] :]
    assert text == llama.tokenizer.decode(new, skip_special_tokens=True)
    assert text


def test_return_dict_gives_an_output_with_the_sequences(llama: Any) -> None:
    """return_dict_in_generate gives transformers' own output class."""
    output = cascade(llama, return_dict_in_generate=True)
    assert isinstance(output, GenerateDecoderOnlyOutput)
    assert torch.equal(output.sequences, cascade(llama))


def test_the_models_are_left_as_they_were(llama: Any) -> None:
    """Neither weights, nor whether they learn, nor the attention, nor the mode of a model is touched."""

    def state() -> list[Any]:
        both = (llama.drafter, llama.verifier)
        return [
            (it.data_ptr(), it.requires_grad, it.sum().item())
            for model in both
            for it in (*model.parameters(), *model.buffers())
        ] + [(model.training, model.config._attn_implementation) for model in both]

    llama.verifier.requires_grad_(True).train()
    before = state()
    cascade(llama)
    after = state()
    llama.verifier.eval()
    assert after == before


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no drafter": ({"drafter": None}, "There is no drafter"),
    "a drafter's name": ({"drafter": "small"}, "There is no drafter"),
    "method": ({"method": "fast"}, "method"),
    "lenience": ({"method": "speed", "lenience": 2.0}, "enience"),
    "draft length": ({"draft_length": 40}, "Draft length"),
    "seed": ({"seed": -1}, "Seed"),
    "beams": ({"num_beams": 2}, "beam search was asked for"),
    "prompt lookup": ({"prompt_lookup_num_tokens": 3}, "assisted generation was asked for"),
    "scores": ({"return_dict_in_generate": True, "output_scores": True}, "leave out output_scores"),
    "penalty": ({"repetition_penalty": 1.1}, "RepetitionPenaltyLogitsProcessor"),
    "typical": ({"do_sample": True, "typical_p": 0.5}, "TypicalLogitsWarper"),
    "a warper twice": (
        {"do_sample": True, "temperature": 0.5, "logits_processor": [TemperatureLogitsWarper(2.0)]},
        "once each",
    ),
    "embeddings": ({"inputs_embeds": torch.zeros(3, 23, 32, dtype=torch.float64)}, "leave out inputs_embeds"),
    "positions": ({"position_ids": torch.arange(3, 26).expand(3, -1)}, "position_ids must count"),
    "length": ({"max_new_tokens": 600}, "ask for fewer"),
    "all padding": ({"attention_mask": torch.zeros(3, 23, dtype=torch.long)}, "at least one token"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_arguments_are_refused(what: str, llama: Any) -> None:
    """Nothing is ignored silently: unsupported arguments raise RequestError."""
    options, words = REFUSED[what]
    assert llama.inputs["input_ids"].shape == (3, 23)
    with pytest.raises(RequestError, match=words):
        cascade(llama, **options)


def test_what_was_read_before_is_refused(llama: Any) -> None:
    """A cache holds what one model has read; here two would have to have read it."""
    seen = llama.inputs["input_ids"][1:2]
    cache = DynamicCache(config=llama.verifier.config)
    llama.verifier(seen[:, :-1], past_key_values=cache)
    with pytest.raises(RequestError, match="past_key_values"):
        cascade(llama, input_ids=seen, attention_mask=torch.ones_like(seen), past_key_values=cache)


def test_another_helper_model_is_refused(llama: Any) -> None:
    """assistant_model, which transformers does not pass on, is refused nevertheless."""
    one = {name: values[1:2] for name, values in llama.inputs.items()}
    with pytest.raises(RequestError, match="drafter="):
        cascade(llama, assistant_model=llama.drafter, **one)


def test_unfit_models_are_refused(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models with an encoder, and attention that takes no custom masks."""
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    encoder = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))
    with pytest.raises(RequestError, match="drafter has an encoder"):
        cascade(llama, drafter=encoder)
    monkeypatch.setattr(llama.drafter.config, "_attn_implementation_internal", "flash_attention_2")
    with pytest.raises(RequestError, match="flash_attention_2"):
        cascade(llama)


def test_abort_between_two_events_ends_one_run_alone(llama: Any) -> None:
    """The run ends after its round, and `Finished` comes once."""
    pair = pair_from_models(llama.drafter, llama.verifier, llama.tokenizer)
    asked = [Request(prompt="The quick", seed=seed, draft_length=2, max_new_tokens=30) for seed in range(3)]
    alone = Engine(pair).generate(asked)
    ends, decided = [], []
    events = Engine(pair, max_sequences=2).stream(asked)
    for event in events:
        if isinstance(event, Finished):
            ends.append((event.index, event.run.stop_reason, event.run.token_ids))
        elif isinstance(event, Decided):
            decided.append(event.index)
            if event.index == 0:
                events.abort(0)
    assert decided.count(0) == 1
    assert sorted(index for index, *_ in ends) == [0, 1, 2]
    for index, reason, ids in ends:
        assert ids == alone[index].token_ids[: len(ids)]
        assert (reason, len(ids) < 3) == (
            ("cancelled", True) if index == 0 else (alone[index].stop_reason, False)
        )


def test_importing_the_package_stays_light() -> None:
    """`import specviz` brings neither torch nor transformers; `cascade_generate` is there all the same."""
    code = "import sys, specviz; assert not {'torch', 'transformers'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert specviz.cascade_generate is custom_generation.cascade_generate
    with pytest.raises(AttributeError, match="cascade_degenerate"):
        _ = specviz.cascade_degenerate
