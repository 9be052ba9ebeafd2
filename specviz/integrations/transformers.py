"""`generate(custom_generate=cascade_generate)`: transformers' arguments become requests, tokens become its sequences.

Knows transformers' generation and the engine; works on ids alone and knows no tokenizer, no text and no page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any, Literal, cast

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import LongTensor, Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    StoppingCriteriaList,
)
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.logits_process import (
    LogitNormalization,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specviz.compat.transformers import attention_of, eos_ids, generate_arguments, padding_id
from specviz.core.sampling import Warp
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Event, Stream
from specviz.errors import RequestError
from specviz.models.pair import ModelPair, context_length
from specviz.runtime import attention
from specviz.runtime.model_runner import TorchModel
from specviz.schema.settings import AUTO, Request

_SEEDS = 1 << 62
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
_WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)
"""The processors that a request can express, in the order in which it applies them."""
_ATTENTIONS = ("eager", "sdpa", attention.NAME)
"""Those that take custom masks, which a batch of sequences at different positions needs."""
_OF_NO_EFFECT = ("use_cache", "logits_to_keep", "cache_position")
"""Keyword arguments that configure forward passes; the engine runs its own."""


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

    transformers calls this with what it made of the arguments of `generate`. do_sample, temperature, top_k, top_p and min_p
    (and nothing else that changes probabilities), max_new_tokens, max_length, eos_token_id, pad_token_id,
    num_return_sequences, streamer, stopping_criteria and return_dict_in_generate mean what they mean there; without
    do_sample the temperature is 0. Stop strings are given as `stopping_criteria=[StopStringCriteria(tokenizer,
    [...])]`: for `stop_strings` transformers wants a tokenizer that it does not take together with a function.

    Neither model is changed. The drafter must have the verifier's tokenizer, which cannot be checked here.

    Args:
        verifier: the model whose `generate` was called.
        input_ids: prompts, int64 [B, n], with padding where `attention_mask` in `model_kwargs` is 0.
        logits_processor: temperature, top-k, top-p, min-p at most.
        stopping_criteria: called with [B, n + t] after each new column t, as transformers does.
        generation_config: as prepared by `generate`.
        drafter: the smaller model, on the verifier's kind of device.
        method: one of `specviz.core.methods.METHODS`.
        lenience: within the method's range; None takes the method's default.
        draft_length: 1 to 16, or "auto"; never changes the text.
        seed: sequence n has the coins of seed + n; None draws one from torch's generator if do_sample is set.
        streamer: gets the tokens [B] of one position after another as soon as all sequences have them, then its end.
        model_kwargs: attention_mask, and what `generate` itself adds.

    Returns:
        Prompts and new tokens, int64 [B, n + new], padded with pad_token_id after a sequence's end; or, with
        return_dict_in_generate, an output with these `sequences`.

    Raises:
        RequestError: an unsupported argument, a value out of range, or more tokens than the context length.
        PairError: a model that SpecViz does not serve, or one that does not state its context length.
        EngineError: as the engine does.
    """
    arguments = generate_arguments()
    streamer = arguments.get("streamer") if streamer is None else streamer
    _check_mode(generation_config, arguments.get("assistant_model"))
    pair = _pair(drafter, verifier, generation_config)
    _check_inputs(input_ids, model_kwargs)

    samples = bool(generation_config.do_sample)
    if seed is None:
        seed = int(torch.randint(_SEEDS, ()).item()) if samples else 0
    template = Request(
        token_ids=[0],
        method=method,
        lenience=lenience,
        draft_length=draft_length,
        seed=seed,
        max_new_tokens=generation_config.max_length - input_ids.shape[1],
        **_warp(logits_processor, samples),
    )
    prompts = _unpadded(input_ids, model_kwargs.get("attention_mask"))
    requests = [replace(template, token_ids=ids, seed=seed + index) for index, ids in enumerate(prompts)]
    if (longest := max(map(len, prompts)) + template.max_new_tokens) > pair.context_length:
        raise RequestError(
            f"Prompt and new tokens come to {longest}; these two models read {pair.context_length}{pair.limit}: ask "
            "for fewer with max_new_tokens, or shorten the prompt."
        )
    with closing(Engine(pair, max_sequences=len(requests), records=False).stream(requests)) as events:
        padding = _padding(generation_config, stopping_criteria)
        sequences = _columns(events, input_ids, stopping_criteria, padding, streamer)
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
    """`sequences` [B, n] and the decoded tokens, column by column, until the criteria have ended all of them.

    Sequences advance independently; criteria and streamers see them in lockstep. One that has ended is padded with
    `padding`, or goes on as long as others do if that is None, both as in transformers.
    """
    batch = range(len(sequences))
    pending: list[deque[int]] = [deque() for _ in batch]
    is_running = [True for _ in batch]
    ended = torch.zeros(len(sequences), dtype=torch.bool, device=sequences.device)
    for event in events:
        if not isinstance(event, Decided):
            continue
        pending[event.index] += event.token_ids
        while all(pending[i] or not is_running[i] for i in batch):
            column = torch.tensor([pending[i].popleft() if is_running[i] else padding for i in batch])
            sequences = torch.cat([sequences, column.to(sequences)[:, None]], dim=-1)
            ended = ended | criteria(sequences, None)
            if streamer is not None:
                streamer.put(column)
            has_ended = ended.tolist()
            if all(has_ended):
                return sequences
            if padding is None:
                continue
            for i in batch:
                if is_running[i] and has_ended[i]:
                    is_running[i] = False
                    events.abort(i)
    return sequences


def _check_mode(config: GenerationConfig, assistant: Any) -> None:
    mode = config.get_generation_mode(assistant)
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise RequestError(
            f"A speculative cascade samples or is greedy, and {mode.value.replace('_', ' ')} was asked for: leave "
            "num_beams at 1, and give the drafter as drafter=, with no other helper."
        )
    asked = [name for name in _OUTPUTS if getattr(config, name)]
    if config.return_dict_in_generate and asked:
        raise RequestError(
            f"A speculative cascade gives sequences only: leave out {asked[0]}, or use SpecViz's own generate with "
            "return_logits."
        )


def _check_inputs(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> None:
    """Raise RequestError for any model input other than ids at the positions from 0 on."""
    given = {name: value for name, value in model_kwargs.items() if value is not None}
    if given.get("mm_encoder_outputs") == {}:  # a multimodal model, given text only
        del given["mm_encoder_outputs"]
    for name in (*_OF_NO_EFFECT, "attention_mask"):
        given.pop(name, None)
    cache, positions = given.pop("past_key_values", None), given.pop("position_ids", None)
    cache = given.pop("cache", cache)  # its name since transformers 5.24
    if cache is not None and cache.get_seq_length() > 0:
        raise RequestError(
            "past_key_values hold what one model has read, and two would have to: leave them out and give the whole "
            "prompt."
        )
    if given:
        raise RequestError(f"A speculative cascade reads input_ids only: leave out {next(iter(given))}.")
    mask = model_kwargs.get("attention_mask")
    mask = torch.ones_like(input_ids) if mask is None else mask
    usual = mask.cumsum(-1) - 1
    if positions is not None and not torch.where(mask.bool(), positions == usual, True).all():
        raise RequestError(
            "position_ids must count every prompt's tokens from 0: leave them out, and padding to attention_mask."
        )


def _warp(processors: LogitsProcessorList, samples: bool) -> dict[str, Any]:
    """Temperature, top-k, top-p and min-p of the request that is equivalent to these processors."""
    # Normalised logits have the same probabilities.
    warpers = [it for it in processors if not isinstance(it, LogitNormalization)]
    foreign = [type(it).__name__ for it in warpers if type(it) not in _WARPERS]
    if foreign:
        raise RequestError(
            f"{foreign[0]} changes probabilities in a way that a speculative cascade does not know: it takes "
            "temperature, top_k, top_p and min_p only, so set others to what has no effect (repetition_penalty=1.0, say)."
        )
    if not samples:
        return {"temperature": 0.0}
    order = [_WARPERS.index(type(it)) for it in warpers]
    if order != sorted(set(order)):
        raise RequestError(
            "Temperature, top-k, top-p and min-p are applied once each, in this order: set them by temperature, top_k, "
            "top_p and min_p, not as logits processors beside these."
        )
    names = [Warp._fields[index] for index in order]
    return {"temperature": 1.0} | {name: getattr(it, name) for name, it in zip(names, warpers, strict=True)}


def _unpadded(input_ids: Tensor, mask: Tensor | None) -> list[list[int]]:
    if mask is None:
        return input_ids.tolist()
    return [ids[own].tolist() for ids, own in zip(input_ids, mask.bool(), strict=True)]


def _padding(config: GenerationConfig, criteria: StoppingCriteriaList) -> int | None:
    """The id that fills ended sequences; transformers pads only where a criterion has EOS ids."""
    return padding_id(config) if any(hasattr(it, "eos_token_id") for it in criteria) else None


def _pair(drafter: PreTrainedModel | None, verifier: PreTrainedModel, config: GenerationConfig) -> ModelPair:
    """A pair of the two unchanged models, without a tokenizer."""
    if not isinstance(drafter, PreTrainedModel):
        raise RequestError(
            "There is no drafter: give a loaded model as drafter=, smaller than the verifier and with its tokenizer."
        )
    models = {"drafter": drafter, "verifier": verifier}
    for name, model in models.items():
        if model.config.is_encoder_decoder:
            raise RequestError(f"The {name} has an encoder: a speculative cascade takes decoder-only models.")
        if (own := attention_of(model)) not in _ATTENTIONS:
            raise RequestError(
                f"The {name}'s attention is {own}, in which sequences cannot stand at different positions: load it with "
                'attn_implementation="sdpa" or "eager".'
            )
    if drafter.device.type != verifier.device.type:
        raise RequestError("Drafter and verifier are on different devices: put both on one.")
    drafter_name, verifier_name = (type(model).__name__ for model in models.values())
    ran = [TorchModel(model) for model in models.values()]
    return ModelPair(
        key="custom",
        title=f"{drafter_name} → {verifier_name}",
        drafter_model=ran[0],
        verifier_model=ran[1],
        tokenizer=_no_tokenizer(),
        drafter_name=drafter_name,
        verifier_name=verifier_name,
        vocabulary_size=min(model.output_size for model in ran),
        context_length=min(context_length(model.config, f"The {name}") for name, model in models.items()),
        eos_token_ids=eos_ids(config),
        is_chat=False,
    )


@cache
def _no_tokenizer() -> PreTrainedTokenizerBase:
    """A tokenizer that decodes every id to nothing: a pair has one, for the texts of traces, which nobody reads here."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
