"""`generate(custom_generate=cascade_generate)`: what transformers asks for becomes requests, tokens its sequences.

Knows transformers' generation and the engine; works on ids alone and knows no tokenizer, no text and no page.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import LongTensor, Tensor
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerFast
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.logits_process import (
    LogitNormalization,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specviz.engine.engine import Decided, Engine, Event, Started
from specviz.errors import RequestError
from specviz.models.pairs import ModelPair, _context_length, _output_size
from specviz.runtime import attention
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run

if TYPE_CHECKING:
    from transformers import (
        GenerationConfig,
        LogitsProcessorList,
        PreTrainedTokenizerBase,
        StoppingCriteriaList,
    )
    from transformers.generation.streamers import BaseStreamer

_SEEDS = 1 << 62
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
_WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
"""What a request knows as well, in the order in which it applies them."""
_ATTENTIONS = ("eager", "sdpa", attention.NAME)
"""Those that take a mask of one's own, which rows at different positions need."""
_OF_NO_EFFECT = ("use_cache", "logits_to_keep", "cache_position")
"""What `generate` tells a decoding loop about its forward passes; the engine makes its own."""


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

    transformers calls this with what it made of the arguments of `generate`. do_sample, temperature, top_k and top_p
    (and nothing else that changes probabilities), max_new_tokens, max_length, eos_token_id, pad_token_id,
    num_return_sequences, streamer, stopping_criteria and return_dict_in_generate mean what they mean there; without
    do_sample the temperature is 0. Texts to stop at are given as `stopping_criteria=[StopStringCriteria(tokenizer,
    [...])]`: for `stop_strings` transformers wants a tokenizer that it does not take together with a function.

    Neither model is changed. The drafter must have the verifier's tokenizer, which cannot be checked here.

    Args:
        verifier: the model whose `generate` was called.
        input_ids: prompts, int64 [B, n], with padding where `attention_mask` in `model_kwargs` is 0.
        logits_processor: temperature, top-k, top-p at most.
        stopping_criteria: called with [B, n + t] after each new column t, as transformers does.
        generation_config: as prepared by `generate`.
        drafter: the smaller model, on the verifier's kind of device.
        method: one of `specviz.core.methods.METHODS`.
        lenience: within the method's range; None takes the method's default.
        draft_length: 1 to 16, or "auto"; never changes the text.
        seed: row n has the coins of seed + n; None draws it from torch's generator, where anything is drawn at all.
        streamer: gets the tokens [B] of one place after another as soon as all rows have them, then its end.
        model_kwargs: attention_mask, and what `generate` itself adds.

    Returns:
        Prompts and new tokens, int64 [B, n + new], rows that ended before others filled with pad_token_id; or, where
        return_dict_in_generate asks for it, an output with these `sequences`.

    Raises:
        RequestError: something is asked for that this cannot do, a value is out of its range, or there is no room for
            so many tokens.
        PairError: a model does not say how many positions it can read.
        EngineError: as the engine does.
    """
    # transformers (up to 5.23 at least) hands a function neither of the two, though `generate` takes them.
    caller = _generate_frame()
    streamer = caller.get("streamer") if streamer is None else streamer
    _check_mode(generation_config, caller.get("assistant_model"))
    _check_inputs(input_ids, model_kwargs)
    pair = _pair(drafter, verifier, generation_config)

    samples = bool(generation_config.do_sample)
    if seed is None:
        seed = int(torch.randint(_SEEDS, ()).item()) if samples else 0
    asked = Request(
        token_ids=[0],
        method=method,
        lenience=lenience,
        draft_length=draft_length,
        seed=seed,
        max_new_tokens=generation_config.max_length - input_ids.shape[1],
        **_warp(logits_processor, samples),
    )
    prompts = _unpadded(input_ids, model_kwargs.get("attention_mask"))
    requests = [replace(asked, token_ids=ids, seed=seed + place) for place, ids in enumerate(prompts)]
    if (longest := max(map(len, prompts)) + asked.max_new_tokens) > pair.context_length:
        raise RequestError(
            f"Prompt and new tokens come to {longest}; these two models read {pair.context_length}: ask for fewer "
            "with max_new_tokens, or shorten the prompt."
        )
    with closing(cast(Any, Engine(pair, max_rows=len(requests)).stream(requests))) as events:
        padding = _padding(generation_config, stopping_criteria)
        sequences = _columns(events, input_ids, stopping_criteria, padding, streamer)
    if streamer is not None:
        streamer.end()
    if generation_config.return_dict_in_generate:
        return GenerateDecoderOnlyOutput(sequences=cast(LongTensor, sequences))
    return sequences


def _columns(
    events: Iterator[Event],
    sequences: Tensor,
    criteria: StoppingCriteriaList,
    padding: int | None,
    streamer: BaseStreamer | None,
) -> Tensor:
    """`sequences` [B, n] and what is decided for them, column by column, until the criteria have ended all rows.

    Rows advance at their own pace, criteria and streamers see them in step. A row that has ended is filled with
    `padding`, or goes on while others do where that is None, both as in transformers.
    """
    rows = range(len(sequences))
    runs: dict[int, Run] = {}
    decided: list[deque[int]] = [deque() for _ in rows]
    going = [True for _ in rows]
    ended = torch.zeros(len(sequences), dtype=torch.bool, device=sequences.device)
    for event in events:
        if isinstance(event, Started):
            runs[event.index] = event.run
        if not isinstance(event, Decided):
            continue
        decided[event.index] += [token.id for token in event.round.tokens]
        while all(decided[row] or not going[row] for row in rows):
            column = torch.tensor([decided[row].popleft() if going[row] else padding for row in rows])
            sequences = torch.cat([sequences, column.to(sequences)[:, None]], dim=-1)
            ended = ended | criteria(sequences, None)
            if streamer is not None:
                streamer.put(column)
            over = ended.tolist()
            if all(over):
                return sequences
            if padding is not None:
                for row in rows:
                    if going[row] and over[row]:
                        going[row] = False
                        runs[row].stop_reason = runs[row].stop_reason or "cancelled"
    return sequences


def _generate_frame() -> Mapping[str, Any]:
    """The variables of the `generate` that called; none where nothing of that name did."""
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame.f_locals if frame is not None else {}


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
    """Refuse what would change the models' reading: their input is ids, from the first position on."""
    given = {name: value for name, value in model_kwargs.items() if value is not None}
    for name in (*_OF_NO_EFFECT, "attention_mask"):
        given.pop(name, None)
    cache, positions = given.pop("past_key_values", None), given.pop("position_ids", None)
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
    """Temperature, top-k and top-p of a request that does what these processors do."""
    # Normalised logits have the same probabilities.
    warpers = [it for it in processors if not isinstance(it, LogitNormalization)]
    foreign = [type(it).__name__ for it in warpers if type(it) not in _WARPERS]
    if foreign:
        raise RequestError(
            f"{foreign[0]} changes probabilities in a way that a speculative cascade does not know: it takes "
            "temperature, top_k and top_p only, so set others to what has no effect (repetition_penalty=1.0, say)."
        )
    if not samples:
        return {"temperature": 0.0}
    order = [_WARPERS.index(type(it)) for it in warpers]
    if order != sorted(set(order)):
        raise RequestError(
            "Temperature, top-k and top-p are applied once each, in this order: set them by temperature, top_k and "
            "top_p, not as logits processors beside these."
        )
    names = [("temperature", "top_k", "top_p")[place] for place in order]
    return {name: getattr(it, name) for name, it in zip(names, warpers, strict=True)}


def _unpadded(input_ids: Tensor, mask: Tensor | None) -> list[list[int]]:
    """Every prompt's own ids."""
    if mask is None:
        return input_ids.tolist()
    return [ids[own].tolist() for ids, own in zip(input_ids, mask.bool(), strict=True)]


def _padding(config: GenerationConfig, criteria: StoppingCriteriaList) -> int | None:
    """What fills rows that have ended; transformers fills them only where some id ends a text."""
    padding = config._pad_token_tensor
    if padding is None or not any(hasattr(it, "eos_token_id") for it in criteria):
        return None
    return int(padding.item())


def _pair(drafter: PreTrainedModel | None, verifier: PreTrainedModel, config: GenerationConfig) -> ModelPair:
    """The two models as they are, by their ids alone."""
    if not isinstance(drafter, PreTrainedModel):
        raise RequestError(
            "There is no drafter: give a loaded model as drafter=, smaller than the verifier and with its tokenizer."
        )
    models = {"drafter": drafter, "verifier": verifier}
    for name, model in models.items():
        if model.config.is_encoder_decoder:
            raise RequestError(f"The {name} has an encoder: a speculative cascade takes decoder-only models.")
        if (own := model.config._attn_implementation) not in _ATTENTIONS:
            raise RequestError(
                f"The {name}'s attention is {own}, in which rows cannot stand at different positions: load it with "
                'attn_implementation="sdpa" or "eager".'
            )
    if drafter.device.type != verifier.device.type:
        raise RequestError("Drafter and verifier are on different devices: put both on one.")
    ends = config._eos_token_tensor
    drafter_name, verifier_name = (type(model).__name__ for model in models.values())
    return ModelPair(
        key="custom",
        title=f"{drafter_name} → {verifier_name}",
        drafter=drafter,
        verifier=verifier,
        tokenizer=_no_tokenizer(),
        drafter_name=drafter_name,
        verifier_name=verifier_name,
        vocabulary_size=min(map(_output_size, models.values())),
        context_length=min(_context_length(model, f"The {name}") for name, model in models.items()),
        eos_token_ids=frozenset() if ends is None else frozenset(ends.tolist()),
        is_chat=False,
    )


@cache
def _no_tokenizer() -> PreTrainedTokenizerBase:
    """Stands where a pair's tokenizer does: it finds no text in any id. Traces would name tokens; here are none."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
