"""What the torch runner serves: an allow-list by a config's traits and a model's class, and a probe where these do not tell.

A transformers model fits the runner if its state is keys and values alone, its positions come from `position_ids`, and what a token
sees comes from a 4-D mask. Imports no modelling code until a model's class is asked for.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specviz.compat.transformers import attention_of
from specviz.errors import PairError, is_out_of_memory
from specviz.runtime.runner import Runner

_log = logging.getLogger(__name__)

SERVED = (
    "SpecViz serves decoder-only models whose layers are full or sliding-window attention, such as Llama, Qwen3, "
    "Gemma and GPT-2"
)
_LAYERS = {"full_attention", "sliding_attention"}
_ROTARY = {"default", "linear", "dynamic", "llama3", "longrope", "proportional", "yarn"}
_LAYER_LISTS = ("layer_types", "layers_block_type")
GROUPED_ATTENTION = "specviz_grouped"
"""The name of our own attention; see `runtime.attention`."""
_ATTENTIONS = ("eager", "sdpa", GROUPED_ATTENTION)
"""Those that take custom masks, which a batch of sequences at different positions needs."""
_PROVEN = {
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"),
    *("gpt2", "gpt_neox", "opt"),
}
"""Model types that need no probe if their traits are served: those of the registry, and their closest relatives."""
_TRIED = 12
"""Tokens of the probe, beyond a sliding window if that is no longer than `_SHORT`."""
_SHORT = 64
_EXACT, _ROUNDED = 0.01, 0.2
"""How far logits may lie apart, in standard deviations: in single precision or better, and in half precision."""

_verdicts: WeakKeyDictionary[Any, dict[str | None, str]] = WeakKeyDictionary()
"""By model and attention, why it is not served; "" if it is."""


def layer_configs(config: Any) -> list[Any]:
    """The config of each layer: all the same one, unless layers differ (Gemma 4's heads)."""
    if getattr(config, "is_heterogeneous", False):
        return list(config.per_layer_config)
    return [config] * config.num_hidden_layers


def rotary_parameters(config: Any) -> list[dict[str, Any]]:
    """The rotary parameters of a config: one, or one for each type of layer; none without rotary positions."""
    given = getattr(config, "rope_parameters", None) or {}
    by_layer = [each for each in given.values() if isinstance(each, dict) and "rope_type" in each]
    return by_layer or ([given] if given else [])


def exact_length(config: Any) -> int | None:
    """Positions up to which cached keys stay right, where that is fewer than the model reads.

    LongRoPE (Phi-3, Phi-4-mini) changes all frequencies where a text passes the original length: transformers then reads the whole
    text again.
    """
    lengths = [
        int(each.get("original_max_position_embeddings") or config.original_max_position_embeddings)
        for each in rotary_parameters(config)
        if each.get("rope_type") == "longrope"
    ]
    return min(lengths, default=None)


def check_config(config: Any) -> None:
    """Refuse a model by its config and its class, before any weights are read.

    Raises:
        PairError: the runner does not serve it; the sentence names the model type.
    """
    reason = _config_has(config)
    if not reason and config.model_type not in _PROVEN:
        # Here and not above: it brings the model's modelling code.
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

        kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
        if isinstance(kind, type):
            reason = _class_has(kind, config.get_text_config(decoder=True))
    if reason:
        raise _refusal(config, reason)


def check(model: Any, runner: Callable[[], Runner]) -> None:
    """Refuse a model by its config, its class and, unless its type is proven, a probe: a few passes over a dozen tokens.

    The probe runs once per model and attention. A model in training mode is not probed: dropout changes its logits.

    Args:
        model: a transformers model.
        runner: makes a runner of the model, with no slots.

    Raises:
        PairError: the runner does not serve it; the sentence names the model type.
    """
    attention = attention_of(model)
    reasons = _verdicts.setdefault(model, {})
    if attention not in reasons:
        text = model.config.get_text_config(decoder=True)
        reason = _config_has(model.config) or _class_has(type(model), text) or _attention_has(attention)
        is_proven = text.model_type in _PROVEN and type(model).__module__.startswith("transformers.")
        if not reason and not is_proven:
            if model.training:
                return
            reason = _probe(model, runner)
        reasons[attention] = reason
    if reasons[attention]:
        raise _refusal(model.config, reasons[attention])


def _refusal(config: Any, reason: str) -> PairError:
    return PairError(f"Models of the type {config.model_type} {reason}: {SERVED}.")


def _config_has(config: Any) -> str:
    """What in a config the runner does not know, as the rest of a sentence about models; "" if nothing."""
    if getattr(config, "is_encoder_decoder", False):
        return "have an encoder"
    text = config.get_text_config(decoder=True)
    for name in _LAYER_LISTS:
        if foreign := sorted(set(getattr(text, name, None) or ()) - _LAYERS):
            return f"have layers of the type {foreign[0]}"
    types = {each.get("rope_type", "default") for each in rotary_parameters(text)}
    if types - _ROTARY:
        return f"have rotary positions of the type {sorted(types - _ROTARY)[0]}"
    if getattr(text, "alibi", False):
        return "make positions of their attention mask (ALiBi)"
    return ""


def _class_has(kind: type, config: Any) -> str:
    """What in a model's class the runner does not know; as `_config_has`."""
    if getattr(kind, "_is_stateful", False):
        return "keep a state from which rejected draft tokens cannot be taken back"
    accepted = inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]
    if cache_argument(kind) not in accepted:
        return "take no cache of keys and values"
    # MPT adds a bias by each key's index, which is its position here too.
    by_index = getattr(getattr(config, "attn_config", None), "alibi", False)
    if "position_ids" not in accepted and not by_index:
        return "take no position_ids, but make positions of a cache or a mask"
    return ""


def _attention_has(attention: str | None) -> str:
    if attention in _ATTENTIONS:
        return ""
    return (
        f"with {attention} attention cannot read sequences that stand at different positions (load them with "
        'attn_implementation="sdpa" or "eager")'
    )


def cache_argument(kind: type) -> str:
    """The argument of a model class's `forward` that takes a cache: `cache` since transformers 5.24."""
    names = inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]
    return "cache" if "cache" in names else "past_key_values"


def _probe(model: Any, runner: Callable[[], Runner]) -> str:
    """Why a model's passes over the runner's cache differ from its own pass without one; as `_config_has`."""
    try:
        apart = _differences(model, runner)
    except Exception as error:  # whatever a model raises that is asked in a way it does not know
        if is_out_of_memory(error):
            raise
        _log.info("a model of the type %s is refused", model.config.model_type, exc_info=error)
        return "cannot read blocks of tokens over SpecViz's cache of keys and values"
    # In half precision rounding may send a token to another expert: most tokens count there, not the worst.
    is_half = torch.finfo(model.dtype).bits < 32
    if (apart.median() <= _ROUNDED) if is_half else (apart.max() <= _EXACT):
        return ""
    return "read a block of tokens otherwise than the same tokens one by one"


@torch.no_grad()
def _differences(model: Any, runner: Callable[[], Runner]) -> Tensor:
    """How far the runner's logits lie from the model's own, in standard deviations, for some tokens.

    Two sequences of different lengths: a prompt, a wrong block that is overwritten, a block, two tokens one by one.
    """
    slots = runner()
    config, device = model.config.get_text_config(decoder=True), slots.device
    window = getattr(config, "sliding_window", None) or 0
    count = _TRIED + (window if window <= _SHORT else 0)
    generator = torch.Generator().manual_seed(0)
    tokens, wrong = torch.randint(config.vocab_size, (2, 2, count), generator=generator).to(device)
    every = torch.arange(count, device=device).expand(2, -1)
    own = {"position_ids": every} if "position_ids" in inspect.signature(model.forward).parameters else {}
    wanted = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **own).logits
    wanted = wanted[..., : slots.vocabulary_size].double()

    lengths = torch.tensor([[count - 6], [count - 8]], device=device)
    prompt = every[:, : count - 6]
    slots.admit([0, 1], count)
    try:
        slots.read(tokens[:, : count - 6], prompt, visible=count - 6, valid=prompt < lengths)
        result = []
        for texts, start, width in ((wrong, 0, 4), (tokens, 0, 4), (tokens, 4, 1), (tokens, 5, 1)):
            at = lengths + start + torch.arange(width, device=device)
            logits = slots.forward(texts.gather(1, at), at, visible=count - 6 + start + width)
            if texts is tokens:
                own_logits = wanted.gather(1, at[..., None].expand(-1, -1, wanted.shape[-1]))
                apart = (logits.double() - own_logits).abs().amax(-1) / own_logits.std(-1)
                result.append(apart.nan_to_num(nan=torch.inf))
    finally:
        slots.clear()
    return torch.cat(result, 1)
