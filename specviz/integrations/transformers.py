"""`generate(custom_generate=cascade_generate)`: speculative cascades inside transformers' `generate`.

The arguments of `generate` become requests, and decided tokens become the sequences that it returns. No tokenizer or text is involved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

import torch
from accelerate.utils import extract_model_from_parallel
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import LongTensor, Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.generation import (
    BaseStreamer,
    GenerateDecoderOnlyOutput,
    GenerationConfig,
    GenerationMode,
    LogitNormalization,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteriaList,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specviz.compat.transformers import eos_ids, generate_arguments, padding_id
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Event, Stream
from specviz.errors import RequestError
from specviz.models.pair import ModelPair, context_length
from specviz.models.servable import torch_model
from specviz.runtime.pass_times import PassTimes
from specviz.schema.settings import AUTO, Request

_SEEDS = 1 << 62
_OF_NO_EFFECT = ("use_cache", "logits_to_keep", "cache_position", "cache", "past_key_values")
"""Ignored keyword arguments: they configure forward passes, and the engine runs its own. The cache is empty: `generate` made it."""

_REFUSED = (
    *("assistant_ensemble_weight", "assistant_tokenizer", "speculation_type", "is_assistant", "synced_gpus"),
    *("cache", "past_key_values", "logits_processor"),
    *("output_scores", "output_logits", "output_attentions", "output_hidden_states"),
)
"""Fields of GenerationConfig and arguments of `generate` that are refused unless None, False or empty.

transformers turns other unsupported fields into logits processors or another generation mode, which are refused as such.
"""

_WARPERS: dict[type[LogitsProcessor], str] = {
    RepetitionPenaltyLogitsProcessor: "penalty",
    NoBadWordsLogitsProcessor: "sequence_bias",
    SuppressTokensLogitsProcessor: "suppress_tokens",
    TemperatureLogitsWarper: "temperature",
    TopKLogitsWarper: "top_k",
    TopPLogitsWarper: "top_p",
    MinPLogitsWarper: "min_p",
}
"""The processors that a request can express, each with the attribute that holds its value."""
_PASS_TIMES: WeakKeyDictionary[Any, WeakKeyDictionary[Any, dict[Any, PassTimes]]] = WeakKeyDictionary()
"""Pass times by verifier and drafter, and by device and dtype: measured once, not in every call."""


def cascade_generate(
    verifier: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    drafter: PreTrainedModel | None = None,
    method: str = "cascade_tokenV3",
    lenience: float | None = None,
    draft_length: int | Literal["auto"] = AUTO,
    seed: int | None = None,
    streamer: BaseStreamer | None = None,
    **model_kwargs: Any,
) -> Tensor | GenerateDecoderOnlyOutput:
    """Decode by a speculative cascade: `verifier.generate(**inputs, custom_generate=cascade_generate, drafter=...)`.

    transformers calls this with the arguments of `generate` as it has prepared them. Each argument means the same as in
    `generate` or raises an error. Without do_sample the temperature is 0. Give stop strings as
    `stopping_criteria=[StopStringCriteria(tokenizer, [...])]`: transformers does not pass a tokenizer for `stop_strings`.

    Neither model is changed. The drafter must have the verifier's tokenizer; this cannot be checked here.

    Args:
        input_ids: prompts, int64 [B, n], padded on the left; `attention_mask` in `model_kwargs` is 0 there.
        logits_processor: may contain repetition penalty, forbidden tokens, temperature, top-k, top-p, min-p, normalisation.
        stopping_criteria: called as in transformers after each new column t, with ids [B, n + t]; scores are None.
        drafter: the smaller model, required, on the verifier's kind of device. A compiled model runs uncompiled.
        method: one of `specviz.core.methods.METHODS`.
        lenience: within the method's range; None takes the method's default.
        draft_length: 1 to 16, or "auto"; never changes the text.
        seed: sequence n has the uniforms of seed + n; None draws a seed from torch's generator if do_sample is set.
        streamer: receives the tokens [B] of a position once every sequence has its token there; `end` is called last.

    Returns:
        Prompts and new tokens, int64 [B, n + new], padded with pad_token_id after a sequence's end; or, with
        return_dict_in_generate, an output with these `sequences`.

    Raises:
        RequestError: an unsupported argument, a value out of range, or more tokens than the context length.
        PairError: a model that SpecViz does not serve, or one that does not state its context length.
    """
    arguments = generate_arguments()
    streamer = arguments.get("streamer") if streamer is None else streamer
    _check_mode(generation_config, arguments)
    prompts = _prompts(input_ids, model_kwargs.get("attention_mask"))
    pair = _pair(drafter, verifier, generation_config)
    _check_inputs(input_ids, model_kwargs)

    samples = bool(generation_config.do_sample)
    if seed is None:
        seed = int(torch.randint(_SEEDS, ()).item()) if samples else 0
    template = Request(
        token_ids=[0],
        method=method,
        lenience=lenience,  # type: ignore[arg-type]  # None is the method's default
        draft_length=draft_length,
        seed=seed,
        max_new_tokens=generation_config.max_length - input_ids.shape[1],
        **_settings(
            logits_processor,
            samples,
            [input_ids.shape[1] - len(ids) for ids in prompts],
            pair.vocabulary_size,
        ),
    )
    requests = [replace(template, token_ids=ids, seed=seed + index) for index, ids in enumerate(prompts)]
    if (longest := max(map(len, prompts)) + template.max_new_tokens) > pair.context_length:
        raise RequestError(
            f"Prompt and new tokens come to {longest}; these two models read {pair.context_length}: ask "
            "for fewer with max_new_tokens, or shorten the prompt."
        )
    known = _PASS_TIMES.setdefault(verifier, WeakKeyDictionary()).setdefault(pair.drafter, {})
    where = verifier.device, verifier.dtype
    if where in known:
        pair.pass_times = known[where]
    with closing(Engine(pair, max_sequences=len(requests), records=False).stream(requests)) as events:
        # transformers pads ended sequences only if a criterion has EOS ids
        pads = any(hasattr(it, "eos_token_id") for it in stopping_criteria)
        padding = padding_id(generation_config) if pads else None
        sequences = _columns(events, input_ids, stopping_criteria, padding, streamer)
    if measured := vars(pair).get("pass_times"):
        known[where] = measured
    if streamer is not None:
        streamer.end()
    if generation_config.return_dict_in_generate:
        return GenerateDecoderOnlyOutput(sequences=cast(LongTensor, sequences))
    return sequences


def _columns(
    events: Stream[Event],
    sequences: Tensor,
    criteria: StoppingCriteriaList,
    padding: int | None,
    streamer: BaseStreamer | None,
) -> Tensor:
    """Append tokens to `sequences` [B, n], column by column, until the criteria have ended all of them.

    Sequences advance independently; criteria and streamers see them in lockstep. As in transformers, an ended sequence is
    padded with `padding`. If `padding` is None, it continues until all sequences have ended.
    """
    batch = range(len(sequences))
    pending: list[deque[int]] = [deque() for _ in batch]
    is_running = [True for _ in batch]
    ended = torch.zeros(len(sequences), dtype=torch.bool, device=sequences.device)
    for event in events:
        if not isinstance(event, Decided):
            continue
        pending[event.index] += event.token_ids
        while any(is_running) and all(pending[i] or not is_running[i] for i in batch):
            column = torch.tensor([pending[i].popleft() if is_running[i] else padding for i in batch])
            sequences = torch.cat([sequences, column.to(sequences)[:, None]], dim=-1)
            ended = ended | criteria(sequences, None)
            if streamer is not None:
                streamer.put(column)
            has_ended = ended.tolist()
            if padding is None and not all(has_ended):
                continue
            for i in batch:
                if is_running[i] and has_ended[i]:
                    is_running[i] = False
                    events.abort(i)
    return sequences


def _check_mode(config: GenerationConfig, arguments: Mapping[str, Any]) -> None:
    """Raise RequestError if a field or argument asks for a way of decoding that is not supported."""
    mode = config.get_generation_mode(arguments.get("assistant_model"))
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise RequestError(
            f"A speculative cascade samples or is greedy, and {mode.value.replace('_', ' ')} was asked for: leave "
            "num_beams at 1, and give the drafter as drafter=, with no other helper."
        )
    for name in _REFUSED:
        if any(given.get(name) not in (None, False, []) for given in (vars(config), arguments)):
            raise RequestError(f"A speculative cascade does not serve {name}: leave it out.")


def _check_inputs(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> None:
    """Raise RequestError if there are model inputs other than ids at positions from 0."""
    # A multimodal model with text only has empty encoder outputs.
    given = {name: value for name, value in model_kwargs.items() if value is not None and value != {}}
    for name in given.keys() - {*_OF_NO_EFFECT, "attention_mask", "position_ids"}:
        raise RequestError(f"A speculative cascade reads input_ids only: leave out {name}.")
    mask = given.get("attention_mask", torch.ones_like(input_ids))
    usual = mask.cumsum(-1) - 1
    positions = given.get("position_ids", usual)
    if positions.shape[-1] != mask.shape[-1] or ((positions != usual) & mask.bool()).any():
        raise RequestError(
            "position_ids must count every prompt's tokens from 0: leave them out, and padding to attention_mask."
        )


def _prompts(input_ids: Tensor, mask: Tensor | None) -> list[list[int]]:
    """The prompts' ids, without padding.

    Raises:
        RequestError: the mask has a different shape, has padding anywhere but on the left, or hides a whole prompt.
    """
    shown = torch.ones_like(input_ids).bool() if mask is None else mask.bool()
    if shown.shape != input_ids.shape or not shown[:, -1:].all() or (shown[:, :-1] & ~shown[:, 1:]).any():
        raise RequestError(
            "attention_mask must have the shape of input_ids and hide nothing but padding on the left, which comes from "
            'tokenizer.padding_side = "left".'
        )
    return [ids[own].tolist() for ids, own in zip(input_ids, shown, strict=True)]


def _settings(
    processors: LogitsProcessorList, samples: bool, padding: list[int], size: int
) -> dict[str, Any]:
    """The request settings that are equivalent to `processors`. Raises RequestError if a processor has no equivalent.

    `samples` is do_sample, `padding` has each prompt's number of padding tokens, and `size` is the vocabulary size.
    """
    asked = dict[str, Any](temperature=float(samples), repetition_penalty=1.0, forbidden_tokens=[])
    for it in processors:
        if isinstance(it, LogitNormalization):  # the last one: it changes no probability
            continue
        if type(it) not in _WARPERS:
            raise RequestError(
                f"{type(it).__name__} changes probabilities in a way that a speculative cascade does not know: it takes "
                "repetition_penalty, suppress_tokens, temperature, top_k, top_p and min_p only, so leave out what asks for others."
            )
        name = _WARPERS[type(it)]
        value = getattr(it, name)
        if isinstance(it, RepetitionPenaltyLogitsProcessor):
            ignored = 0 if it.prompt_ignore_length is None else it.prompt_ignore_length
            if (torch.tensor(padding) != torch.as_tensor(ignored).cpu()).any():
                raise RequestError(
                    "transformers before 5.23 counts padding as text, so that a repetition penalty holds for it: give prompts "
                    "without padding."
                )
            asked["repetition_penalty"] = value
        elif isinstance(it, SuppressTokensLogitsProcessor):  # which ignores ids that the model lacks
            asked["forbidden_tokens"] += [each for each in value.tolist() if 0 <= each < size]
        elif isinstance(it, NoBadWordsLogitsProcessor):
            if any(len(word) > 1 for word in value):
                raise RequestError(
                    "bad_words_ids has a word of several tokens: a speculative cascade forbids single tokens only."
                )
            asked["forbidden_tokens"] += [token for (token,) in value]
        else:
            asked[name] = value
    return asked


def _pair(drafter: PreTrainedModel | None, verifier: PreTrainedModel, config: GenerationConfig) -> ModelPair:
    """A pair of the two models, without a tokenizer."""
    drafter = _unwrapped(drafter)
    models = {"drafter": drafter, "verifier": verifier}
    if drafter.device.type != verifier.device.type:
        raise RequestError("Drafter and verifier are on different devices: put both on one.")
    drafter_name, verifier_name = (type(model).__name__ for model in models.values())
    ran = [torch_model(model) for model in models.values()]
    return ModelPair(
        key="custom",
        title=f"{drafter_name} → {verifier_name}",
        drafter_model=ran[0],
        verifier_model=ran[1],
        tokenizer=_no_tokenizer(),
        drafter_name=drafter_name,
        verifier_name=verifier_name,
        vocabulary_size=ran[1].output_size,
        context_length=min(context_length(model.config, f"The {name}") for name, model in models.items()),
        eos_token_ids=eos_ids(config),
        is_chat=False,
    )


def _unwrapped(drafter: Any) -> PreTrainedModel:
    """The drafter without the wrapper of `torch.compile` or of multi-device containers."""
    if isinstance(drafter, nn.Module) and not isinstance(drafter, PreTrainedModel):
        drafter = extract_model_from_parallel(drafter, keep_torch_compile=False)
    if not isinstance(drafter, PreTrainedModel):
        raise RequestError(
            "There is no drafter: give a loaded model of transformers as drafter=, smaller than the verifier and with its tokenizer; "
            "of an adapter, what merge_and_unload() returns."
        )
    return drafter


@cache
def _no_tokenizer() -> PreTrainedTokenizerBase:
    """A tokenizer that decodes every id to "". A pair needs one for the texts of traces, which are not used here."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
