"""`generate(custom_generate=cascade_generate)`: transformers' arguments become requests, tokens become its sequences.

Knows transformers' generation and the engine; works on ids alone and knows no tokenizer, no text and no page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields, replace
from functools import cache
from typing import Any, Literal, cast

import torch
from accelerate.utils import extract_model_from_parallel
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import LongTensor, Tensor, nn
from torch.nn import functional
from transformers import (
    Cache,
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
    LogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specviz.compat.transformers import eos_ids, generate_arguments, padding_id
from specviz.core.methods import get_method
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Event, Finished, Stream
from specviz.errors import RequestError
from specviz.models.pair import ModelPair, context_length
from specviz.models.servable import torch_model
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run

_SEEDS = 1 << 62
_OF_NO_EFFECT = ("use_cache", "logits_to_keep", "cache_position")
"""Keyword arguments that configure forward passes; the engine runs its own."""
_CACHES = ("cache", "past_key_values")
"""Names of the cache in arguments and outputs: the first from transformers 5.24 on, the second before."""
_CACHE = next(it.name for it in fields(GenerateDecoderOnlyOutput) if it.name in _CACHES)

SERVED = "served"
"""Means what it means in `generate`."""
PROCESSOR = "processor"
"""Becomes a logits processor in `generate`: `_settings` serves or refuses the processor."""
MODE = "mode"
"""Selects another way of decoding in `generate`, which `_check_mode` refuses."""
NO_EFFECT = "no effect"
"""Changes no text in a greedy or sampling `generate`."""
BY_TRANSFORMERS = "transformers"
"""Needs a tokenizer, which `generate` does not take together with a function: it raises ValueError itself."""

_FIELDS: dict[str, tuple[str, ...]] = {
    SERVED: (
        *("max_length", "max_new_tokens", "max_time", "do_sample", "num_return_sequences", "use_cache"),
        *("pad_token_id", "eos_token_id", "output_scores", "output_logits", "return_dict_in_generate"),
    ),
    PROCESSOR: (
        *("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "suppress_tokens", "bad_words_ids"),
        *("renormalize_logits", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "sequence_bias"),
        *("encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
        *("exponential_decay_length_penalty", "min_length", "min_new_tokens", "begin_suppress_tokens"),
        *("forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values"),
        *("guidance_scale", "watermarking_config"),
    ),
    MODE: (
        *("num_beams", "penalty_alpha", "constraints", "force_words_ids", "dola_layers"),
        *("use_mtp", "prompt_lookup_num_tokens", "assistant_early_exit"),
    ),
    NO_EFFECT: (
        # Of beam search alone.
        *("early_stopping", "length_penalty", "num_beam_groups", "diversity_penalty"),
        # How transformers' own assisted generation drafts.
        *("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
        *("max_matching_ngram_size", "assistant_lookbehind", "target_lookbehind"),
        # How transformers runs passes and stores keys and values.
        *("cache_implementation", "cache_config", "max_cache_len", "low_memory", "prefill_chunk_size"),
        *("compile_config", "disable_compile", "continuous_batching_config"),
        # Of a text without a prompt, of models with an encoder, of the config itself.
        *("bos_token_id", "decoder_start_token_id", "transformers_version", "_from_model_config"),
    ),
    BY_TRANSFORMERS: ("stop_strings", "token_healing"),
}
FIELDS: dict[str, str] = {name: fate for fate, names in _FIELDS.items() for name in names} | {
    "assistant_ensemble_weight": 'ask for method="static_mixture" with lenience=1 - w instead of a weight w',
    "speculation_type": "leave it out and give a model as drafter=",
    "is_assistant": "leave it out, which is for assistants of transformers' own assisted generation",
    "output_attentions": "leave it out, since its passes return no attentions",
    "output_hidden_states": "leave it out, since its passes return no hidden states",
}
"""What becomes of each field of GenerationConfig. One that is none of the above is refused unless it is None or False, with this advice."""

ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(("inputs", "generation_config", "custom_generate", "kwargs"), SERVED),
    **dict.fromkeys(("stopping_criteria", "streamer"), SERVED),
    **dict.fromkeys(("logits_processor", "prefix_allowed_tokens_fn"), PROCESSOR),
    "assistant_model": MODE,
    # Of guidance_scale, which is refused, and of what is not asked for.
    **dict.fromkeys(("negative_prompt_ids", "negative_prompt_attention_mask"), NO_EFFECT),
    **dict.fromkeys(("tokenizer", "trust_remote_code"), NO_EFFECT),
    "synced_gpus": "leave it out, since its processes do not wait for each other",
    "assistant_tokenizer": "leave it out and give a drafter with the verifier's own tokenizer",
}
"""What becomes of each argument of `generate`, in the same words."""

_WARPERS: dict[type[LogitsProcessor], str] = {
    RepetitionPenaltyLogitsProcessor: "penalty",
    NoBadWordsLogitsProcessor: "sequence_bias",
    SuppressTokensLogitsProcessor: "suppress_tokens",
    TemperatureLogitsWarper: "temperature",
    TopKLogitsWarper: "top_k",
    TopPLogitsWarper: "top_p",
    MinPLogitsWarper: "min_p",
}
"""The processors that a request can express, each with the attribute that is read, in the order in which a request applies them."""
_BANS = (NoBadWordsLogitsProcessor, SuppressTokensLogitsProcessor)


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

    transformers calls this with what it made of the arguments of `generate`. `FIELDS` and `ARGUMENTS` list what is served, refused
    and without effect. What is served means what it means in `generate`; without do_sample the temperature is 0. Stop strings are
    given as `stopping_criteria=[StopStringCriteria(tokenizer, [...])]`: for `stop_strings` transformers wants a tokenizer that
    it does not take together with a function.

    Neither model is changed. The drafter must have the verifier's tokenizer, which cannot be checked here.

    Args:
        verifier: the model whose `generate` was called.
        input_ids: prompts, int64 [B, n], with padding on the left, where `attention_mask` in `model_kwargs` is 0.
        logits_processor: repetition penalty, forbidden tokens, temperature, top-k, top-p, min-p and normalisation at most.
        stopping_criteria: called after each new column t with ids [B, n + t], as transformers does, and None for scores.
        generation_config: as prepared by `generate`.
        drafter: the smaller model, on the verifier's kind of device. A compiled one runs uncompiled.
        method: one of `specviz.core.methods.METHODS`.
        lenience: within the method's range; None takes the method's default.
        draft_length: 1 to 16, or "auto"; never changes the text.
        seed: sequence n has the coins of seed + n; None draws one from torch's generator if do_sample is set.
        streamer: gets the tokens [B] of one position after another as soon as all sequences have them, then its end.
        model_kwargs: attention_mask, and what `generate` itself adds. An empty cache that the caller gave is filled as `generate`
            fills it, for which the verifier reads the sequences once more.

    Returns:
        Prompts and new tokens, int64 [B, n + new], padded with pad_token_id after a sequence's end; or, with
        return_dict_in_generate, an output with these `sequences` and, unless use_cache is False, the filled cache.
        `logits` and `scores`, float32 [B, V] for each new column, are the verifier's that the method decided with, raw and
        processed. After a sequence's end they are 0: nothing is computed there.

    Raises:
        RequestError: an unsupported argument, a value out of range, or more tokens than the context length.
        PairError: a model that SpecViz does not serve, or one that does not state its context length.
        EngineError: as the engine does.
    """
    arguments = generate_arguments()
    streamer = arguments.get("streamer") if streamer is None else streamer
    _check_mode(generation_config, arguments)
    prompts = _prompts(input_ids, model_kwargs.get("attention_mask"))
    pair = _pair(drafter, verifier, generation_config)
    cache = _check_inputs(input_ids, model_kwargs)

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
        return_logits=_returns_logits(generation_config),
        **_settings(logits_processor, samples, [input_ids.shape[1] - len(ids) for ids in prompts]),
    )
    _check_outputs(generation_config, template)
    requests = [replace(template, token_ids=ids, seed=seed + index) for index, ids in enumerate(prompts)]
    if (longest := max(map(len, prompts)) + template.max_new_tokens) > pair.context_length:
        raise RequestError(
            f"Prompt and new tokens come to {longest}; these two models read {pair.context_length}{pair.limit}: ask "
            "for fewer with max_new_tokens, or shorten the prompt."
        )
    with closing(Engine(pair, max_sequences=len(requests), records=False).stream(requests)) as events:
        padding = _padding(generation_config, stopping_criteria)
        sequences, runs, counts = _columns(events, input_ids, stopping_criteria, padding, streamer)
    if streamer is not None:
        streamer.end()
    is_dict = bool(generation_config.return_dict_in_generate)
    if cache is not None and (is_dict or any(arguments.get(name) is not None for name in _CACHES)):
        _fill(cache, verifier, sequences, model_kwargs.get("attention_mask"))
    if not is_dict:
        return sequences
    scores, logits = _outputs(generation_config, logits_processor, sequences, runs, counts)
    found: dict[str, Any] = {"scores": scores, "logits": logits, _CACHE: cache}
    return GenerateDecoderOnlyOutput(sequences=cast(LongTensor, sequences), **found)


def _columns(
    events: Stream[Event],
    sequences: Tensor,
    criteria: StoppingCriteriaList,
    padding: int | None,
    streamer: BaseStreamer | None,
) -> tuple[Tensor, list[Run], list[int]]:
    """`sequences` [B, n] and the decoded tokens, column by column, until the criteria have ended all of them.

    Sequences advance independently; criteria and streamers see them in lockstep. One that has ended is padded with
    `padding`, or goes on as long as others do if that is None, both as in transformers.

    Returns:
        The sequences; each one's run, which may hold more tokens; and how many of its tokens each sequence has.
    """
    batch = range(len(sequences))
    pending: list[deque[int]] = [deque() for _ in batch]
    is_running = [True for _ in batch]
    counts = [0 for _ in batch]
    runs = dict[int, Run]()
    ended = torch.zeros(len(sequences), dtype=torch.bool, device=sequences.device)
    for event in events:
        if isinstance(event, Finished):
            runs[event.index] = event.run
        if not isinstance(event, Decided):
            continue
        pending[event.index] += event.token_ids
        while any(is_running) and all(pending[i] or not is_running[i] for i in batch):
            column = torch.tensor([pending[i].popleft() if is_running[i] else padding for i in batch])
            counts = [count + running for count, running in zip(counts, is_running, strict=True)]
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
    return sequences, [runs[i] for i in batch], counts


def _check_mode(config: GenerationConfig, arguments: Mapping[str, Any]) -> None:
    """Raise RequestError for fields and arguments that ask for another way of decoding."""
    mode = config.get_generation_mode(arguments.get("assistant_model"))
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise RequestError(
            f"A speculative cascade samples or is greedy, and {mode.value.replace('_', ' ')} was asked for: leave "
            "num_beams at 1, and give the drafter as drafter=, with no other helper."
        )
    for table, given in ((FIELDS, vars(config)), (ARGUMENTS, arguments)):
        for name, advice in table.items():
            value = given.get(name)
            if advice not in _FIELDS and value is not None and value is not False:
                raise RequestError(f"A speculative cascade does not serve {name}: {advice}.")


def _returns_logits(config: GenerationConfig) -> bool:
    return bool(config.return_dict_in_generate and (config.output_scores or config.output_logits))


def _check_outputs(config: GenerationConfig, request: Request) -> None:
    """Raise RequestError where the verifier's logits that are asked for are not there."""
    if request.return_logits and not get_method(request.method).verifies:
        raise RequestError(
            f"{request.method} runs no verifier, whose logits output_scores and output_logits are: leave them out."
        )
    changed = request.repetition_penalty != 1 or request.forbidden_tokens
    if request.return_logits and config.output_logits and changed:
        raise RequestError(
            "output_logits are logits before repetition_penalty, suppress_tokens and bad_words_ids, which are not kept: leave it "
            "out, or ask for output_scores."
        )


def _check_inputs(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> Cache | None:
    """The empty cache among the model's inputs, if there is one.

    Raises:
        RequestError: any model input other than ids at the positions from 0 on.
    """
    given = {name: value for name, value in model_kwargs.items() if value is not None}
    if given.get("mm_encoder_outputs") == {}:  # a multimodal model, given text only
        del given["mm_encoder_outputs"]
    for name in (*_OF_NO_EFFECT, "attention_mask"):
        given.pop(name, None)
    caches = [given.pop(name) for name in _CACHES if name in given]
    positions = given.pop("position_ids", None)
    if any(cache.get_seq_length() > 0 for cache in caches):
        raise RequestError(
            "The cache holds what one model has read, and two would have to: leave it out, or give an empty one, and give the "
            "whole prompt."
        )
    if given:
        raise RequestError(f"A speculative cascade reads input_ids only: leave out {next(iter(given))}.")
    mask = model_kwargs.get("attention_mask")
    mask = torch.ones_like(input_ids) if mask is None else mask
    usual = mask.cumsum(-1) - 1
    if positions is not None and positions.shape[-1] != usual.shape[-1]:
        raise _unequal("attention_mask or position_ids", positions, input_ids)
    if positions is not None and not torch.where(mask.bool(), positions == usual, True).all():
        raise RequestError(
            "position_ids must count every prompt's tokens from 0: leave them out, and padding to attention_mask."
        )
    return caches[0] if caches else None


def _prompts(input_ids: Tensor, mask: Tensor | None) -> list[list[int]]:
    """Each prompt's ids, without the padding on its left.

    Raises:
        RequestError: a mask of another shape, with padding elsewhere, or of no token at all.
    """
    if mask is None:
        return input_ids.tolist()
    if mask.shape != input_ids.shape:
        raise _unequal("attention_mask", mask, input_ids)
    shown = mask.bool()
    if not shown.any(-1).all():
        raise RequestError("attention_mask hides a whole prompt: each must have at least one token.")
    if (shown[:, :-1] & ~shown[:, 1:]).any():
        raise RequestError(
            "attention_mask hides tokens behind others: a speculative cascade takes padding on the left only, by "
            'tokenizer.padding_side = "left".'
        )
    return [ids[own].tolist() for ids, own in zip(input_ids, shown, strict=True)]


def _unequal(name: str, given: Tensor, input_ids: Tensor) -> RequestError:
    return RequestError(
        f"{name} has shape {tuple(given.shape)} and input_ids has {tuple(input_ids.shape)}: give one number for each id."
    )


def _settings(processors: LogitsProcessorList, samples: bool, padding: list[int]) -> dict[str, Any]:
    """The settings of the request that is equivalent to these processors; `padding` counts each prompt's padding tokens."""
    # Normalised logits have the same probabilities; their signs differ, which a penalty behind them would see.
    normalises = [isinstance(it, LogitNormalization) for it in processors]
    warpers = [it for it, is_norm in zip(processors, normalises, strict=True) if not is_norm]
    foreign = [type(it).__name__ for it in warpers if type(it) not in _WARPERS]
    if foreign:
        raise RequestError(
            f"{foreign[0]} changes probabilities in a way that a speculative cascade does not know: it takes "
            "repetition_penalty, suppress_tokens, temperature, top_k, top_p and min_p only, so leave out what asks for others."
        )
    kinds = list(map(type, warpers))
    order = [list(_WARPERS).index(kind) for kind in kinds]
    if order != sorted(set(order)) or (RepetitionPenaltyLogitsProcessor in kinds and normalises[0]):
        raise RequestError(
            "Repetition penalty, forbidden tokens, temperature, top-k, top-p and min-p are applied once each, in this order: "
            "set them by repetition_penalty, temperature, top_k, top_p and min_p, not as logits processors beside these."
        )
    asked = dict[str, Any](temperature=1.0, repetition_penalty=1.0, forbidden_tokens=[])
    for it in warpers:
        value = getattr(it, _WARPERS[type(it)])
        if isinstance(it, RepetitionPenaltyLogitsProcessor):
            _check_penalty(it, padding)
            asked["repetition_penalty"] = value
        elif isinstance(it, _BANS):
            asked["forbidden_tokens"] += _banned(value)
        else:
            _check_warper(it, value)
            asked[_WARPERS[type(it)]] = value
    if not samples:
        asked = {name: asked[name] for name in ("repetition_penalty", "forbidden_tokens")} | {
            "temperature": 0.0
        }
    return asked


def _check_warper(warper: LogitsProcessor, value: float) -> None:
    """Raise RequestError where a warper differs from a default one of the same value in any other attribute."""
    default = vars(type(warper)(value))  # type: ignore[call-arg]
    for name, own in vars(warper).items():
        if own != default[name]:
            raise RequestError(
                f"{type(warper).__name__} has {name}={own}, which a speculative cascade does not serve: leave it at {default[name]}."
            )


def _check_penalty(penalty: RepetitionPenaltyLogitsProcessor, padding: list[int]) -> None:
    """Raise RequestError unless the penalty is for all tokens but the padding."""
    ignored = 0 if penalty.prompt_ignore_length is None else penalty.prompt_ignore_length
    if (torch.tensor(padding) != torch.as_tensor(ignored).cpu()).any():
        raise RequestError(
            "This repetition penalty is not for all tokens of prompt and text and no others: set it by repetition_penalty, and give "
            "prompts without padding, which transformers before 5.23 counts as text."
        )


def _banned(tokens: Tensor | Mapping[tuple[int, ...], float]) -> list[int]:
    """Ids of suppressed tokens [n], or of the bad words that a bias of −inf forbids."""
    if isinstance(tokens, Tensor):
        return tokens.tolist()
    if any(len(word) > 1 for word in tokens):
        raise RequestError(
            "bad_words_ids has a word of several tokens: a speculative cascade forbids single tokens only."
        )
    return [int(token) for (token,) in tokens]


def _outputs(
    config: GenerationConfig,
    processors: LogitsProcessorList,
    sequences: Tensor,
    runs: list[Run],
    counts: list[int],
) -> tuple[Any, Any]:
    """Scores and logits, [B, V] for each new column and 0 after a sequence's end; each None where it was not asked for."""
    if not _returns_logits(config):
        return None, None
    new, size = max(counts), runs[0].verifier_logits.shape[-1]
    kept = torch.zeros(new, len(runs), size, device=sequences.device)
    for row, (run, count) in enumerate(zip(runs, counts, strict=True)):
        kept[:count, row] = run.verifier_logits[:count].to(kept)
    # What was kept has the penalty already.
    after = LogitsProcessorList(
        it for it in processors if not isinstance(it, RepetitionPenaltyLogitsProcessor)
    )
    has_ended = torch.arange(new)[:, None] >= torch.tensor(counts)
    begin, scores = sequences.shape[1] - new, None
    if config.output_scores:
        scores = tuple(
            after(cast(LongTensor, sequences[:, : begin + step]), logits.clone()).masked_fill(
                has_ended[step, :, None].to(logits.device), 0.0
            )
            for step, logits in enumerate(kept)
        )
    return scores, tuple(kept) if config.output_logits else None


def _fill(cache: Cache, verifier: PreTrainedModel, sequences: Tensor, mask: Tensor | None) -> None:
    """Have the verifier read all tokens but the last into the cache, as after `generate`."""
    ids = sequences[:, :-1].to(verifier.device)
    inputs = dict[str, Any]()
    if mask is not None:
        inputs["attention_mask"] = functional.pad(mask, (0, ids.shape[1] - mask.shape[1]), value=1).to(ids)
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    verifier.base_model(input_ids=ids, use_cache=True, **inputs, **{_CACHE: cache})


def _padding(config: GenerationConfig, criteria: StoppingCriteriaList) -> int | None:
    """The id that fills ended sequences; transformers pads only where a criterion has EOS ids."""
    return padding_id(config) if any(hasattr(it, "eos_token_id") for it in criteria) else None


def _pair(drafter: PreTrainedModel | None, verifier: PreTrainedModel, config: GenerationConfig) -> ModelPair:
    """A pair of the two unchanged models, without a tokenizer."""
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
    """The drafter itself, out of `torch.compile` or of a container for several devices."""
    if isinstance(drafter, nn.Module) and not isinstance(drafter, PreTrainedModel):
        drafter = extract_model_from_parallel(drafter, keep_torch_compile=False)
    if isinstance(drafter, PreTrainedModel):
        return drafter
    if isinstance(drafter, nn.Module):
        raise RequestError(
            f"The drafter is a {type(drafter).__name__} around a model: give transformers' own model as drafter=, of an adapter "
            "what merge_and_unload() returns."
        )
    raise RequestError(
        "There is no drafter: give a loaded model as drafter=, smaller than the verifier and with its tokenizer."
    )


@cache
def _no_tokenizer() -> PreTrainedTokenizerBase:
    """A tokenizer that decodes every id to nothing: a pair has one, for the texts of traces, which nobody reads here."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
