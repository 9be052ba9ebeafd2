"""Decides which transformers models the torch runner serves: allow-lists for config and class, and a probe if these do not decide.

The runner serves a model if its only state is keys and values, its positions come from `position_ids`, and a 4-D mask says which keys
a token sees. Imports no modelling code until a model's class is needed.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specviz.compat.transformers import attention_of, cache_argument, is_stateful
from specviz.errors import PairError, is_out_of_memory
from specviz.runtime.runner import Runner

if TYPE_CHECKING:
    from specviz.runtime.model_runner import TorchModel

_log = logging.getLogger(__name__)

SERVED = (
    "SpecViz serves decoder-only models whose layers are full or sliding-window attention, such as Llama, Qwen3, "
    "Gemma and GPT-2"
)
_LAYERS = {"full_attention", "sliding_attention"}
_ROTARY = {"default", "linear", "dynamic", "llama3", "longrope", "proportional", "yarn"}
_PROVEN = {
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"),
    *("gpt2", "gpt_neox", "opt"),
}
"""Model types that need no probe: those of the registry, and their closest relatives."""
_PROBED = 12
"""Tokens of each sequence in the probe. A sliding window of at most `_SHORT_WINDOW` is added, so that the probe reaches beyond it."""
_SHORT_WINDOW = 64
_EXACT, _ROUNDED = 0.01, 0.2
"""Allowed difference of logits, in standard deviations: `_EXACT` for all tokens in float32 and float64, else `_ROUNDED` for the median."""

_verdicts: WeakKeyDictionary[Any, dict[str | None, str]] = WeakKeyDictionary()
"""By model and name of its attention: why the model is not served; "" if it is served."""


def rotary_parameters(config: Any) -> list[dict[str, Any]]:
    """The sets of rotary parameters in a config: one for all layers, or one for each type of layer; empty without rotary positions."""
    given = getattr(config, "rope_parameters", None) or {}
    by_layer = [each for each in given.values() if isinstance(each, dict) and "rope_type" in each]
    return by_layer or ([given] if given else [])


def exact_length(config: Any) -> int | None:
    """Number of positions for which cached keys stay valid; None if they stay valid at any length.

    LongRoPE (Phi-3, Phi-4-mini) changes all frequencies once a sequence exceeds the original length; transformers then recomputes the
    whole sequence.
    """
    lengths = [
        int(each.get("original_max_position_embeddings") or config.original_max_position_embeddings)
        for each in rotary_parameters(config)
        if each.get("rope_type") == "longrope"
    ]
    return min(lengths, default=None)


def check_config(config: Any) -> None:
    """Refuse an unsupported model by its config and its class, before any weights are read.

    Raises:
        PairError: the runner does not serve it; the sentence names the model type.
    """
    reason = _config_has(config)
    if not reason and config.model_type not in _PROVEN:
        # Imported here, since it brings the model's modelling code.
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

        kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
        if isinstance(kind, type):
            reason = _class_has(kind, config.get_text_config(decoder=True))
    _raise_if(reason, config)


def torch_model(module: Any) -> TorchModel:
    """Wrap a transformers model as a `TorchModel`, if the runner serves it.

    Checks the config, the class and, unless the model type is in `_PROVEN`, runs a probe: a few passes over a dozen tokens. The
    probe runs once per model and attention. A model in training mode is not probed, because dropout changes its logits.

    Raises:
        PairError: the runner does not serve it; the sentence names the model type.
    """
    # Imported here, since they bring modelling code; whoever has a model has imported that already.
    from specviz.runtime.attention import GROUPED_ATTENTION
    from specviz.runtime.model_runner import TorchModel

    model = TorchModel(module)
    attention = attention_of(module)
    reasons = _verdicts.setdefault(module, {})
    if attention not in reasons:
        text = module.config.get_text_config(decoder=True)
        reason = _config_has(module.config) or _class_has(type(module), text)
        # A batch of sequences at different positions needs custom masks.
        if not reason and attention not in ("eager", "sdpa", GROUPED_ATTENTION):
            reason = (
                f"with {attention} attention cannot read sequences that stand at different positions (load them with "
                'attn_implementation="sdpa" or "eager")'
            )
        is_proven = text.model_type in _PROVEN and type(module).__module__.startswith("transformers.")
        if not reason and not is_proven:
            if module.training:
                return model
            reason = _probe(model)
        reasons[attention] = reason
    _raise_if(reasons[attention], module.config)
    return model


def _raise_if(reason: str, config: Any) -> None:
    if reason:
        raise PairError(f"Models of the type {config.model_type} {reason}: {SERVED}.")


def _config_has(config: Any) -> str:
    """Why the runner does not serve a config, as the predicate of a sentence about such models; "" if it serves the config."""
    if getattr(config, "is_encoder_decoder", False):
        return "have an encoder"
    text = config.get_text_config(decoder=True)
    for name in ("layer_types", "layers_block_type"):
        if foreign := sorted(set(getattr(text, name, None) or ()) - _LAYERS):
            return f"have layers of the type {foreign[0]}"
    types = {each.get("rope_type", "default") for each in rotary_parameters(text)}
    if types - _ROTARY:
        return f"have rotary positions of the type {sorted(types - _ROTARY)[0]}"
    if getattr(text, "alibi", False):
        return "derive positions from their attention mask (ALiBi)"
    return ""


def _class_has(kind: type, config: Any) -> str:
    """Why the runner does not serve a model's class; as `_config_has`."""
    if is_stateful(kind):
        return "keep a state from which rejected draft tokens cannot be taken back"
    accepted = inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]
    if cache_argument(kind) not in accepted:
        return "take no cache of keys and values"
    # MPT adds a bias by each key's index in the cache, which is also its position here.
    by_index = getattr(getattr(config, "attn_config", None), "alibi", False)
    if "position_ids" not in accepted and not by_index:
        return "take no position_ids, but derive positions from a cache or a mask"
    return ""


def _probe(model: TorchModel) -> str:
    """Compare logits computed over the runner's cache with those of a pass without a cache. Returns a reason as `_config_has` does."""
    module: Any = model.module()
    try:
        differences = _differences(module, model.runner(model.output_size, apart=True))
    except Exception as error:  # a model may raise anything when it is called in a way it does not know
        if is_out_of_memory(error):
            raise
        _log.info("a model of the type %s is refused", module.config.model_type, exc_info=error)
        return "cannot read blocks of tokens over SpecViz's cache of keys and values"
    # In half precision rounding may send a token to another expert: the median token counts, not the worst.
    is_half = torch.finfo(module.dtype).bits < 32
    if (differences.median() <= _ROUNDED) if is_half else (differences.max() <= _EXACT):
        return ""
    return "compute other logits for a block of tokens than for the same tokens one by one"


@torch.no_grad()
def _differences(model: Any, runner: Runner) -> Tensor:
    """Largest difference between the runner's logits and the model's own at each token, in standard deviations: [2, 6].

    Two sequences of different lengths are read: a prompt, a wrong block, the right block in its place, then two tokens one by one.
    """
    config, device = model.config.get_text_config(decoder=True), runner.device
    window = getattr(config, "sliding_window", None) or 0
    count = _PROBED + (window if window <= _SHORT_WINDOW else 0)
    generator = torch.Generator().manual_seed(0)
    tokens, wrong = torch.randint(config.vocab_size, (2, 2, count), generator=generator).to(device)
    positions = torch.arange(count, device=device).expand(2, -1)
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    given = {"position_ids": positions} if takes_positions else {}
    expected = model(
        input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **given
    ).logits
    expected = expected[..., : runner.vocabulary_size].double()

    longest = count - 6
    lengths = torch.tensor([[longest], [longest - 2]], device=device)
    prompt = positions[:, :longest]
    runner.admit([0, 1], count)
    runner.read(tokens[:, :longest], prompt, visible=longest, valid=prompt < lengths)
    result = []
    for ids, start, width in ((wrong, 0, 4), (tokens, 0, 4), (tokens, 4, 1), (tokens, 5, 1)):
        at = lengths + start + torch.arange(width, device=device)
        logits = runner.forward(ids.gather(1, at), at, visible=longest + start + width)
        if ids is tokens:
            own = expected.gather(1, at[..., None].expand(-1, -1, expected.shape[-1]))
            difference = (logits.double() - own).abs().amax(-1) / own.std(-1)
            result.append(difference.nan_to_num(nan=torch.inf))
    return torch.cat(result, 1)
