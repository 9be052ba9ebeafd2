"""A loaded model pair: a drafter and a verifier that share a tokenizer; and checks that two models can form a pair.

From the verifier's generation config, a pair takes EOS ids, suppressed ids and repetition penalty. Requests set temperature and truncation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specviz.errors import PairError, quoted

if TYPE_CHECKING:  # importing them takes seconds; refusing an unknown pair needs none
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from specviz.core.backend import Backend
    from specviz.runtime.pass_times import PassTimes
    from specviz.runtime.runner import Model, Runner


@dataclass(eq=False)
class ModelPair:
    """A drafter and a verifier, ready to run, over one tokenizer's ids.

    Attributes:
        drafter_model, verifier_model: the loaded models, from which runners are made.
        key: the registry's key, or any other name.
        vocabulary_size: number of the tokenizer's ids that the verifier scores: 0 … vocabulary_size − 1. Further logits are
            padding and are cut off. q is 0 for ids that the drafter lacks.
        context_length: number of positions that both models can read.
        eos_token_ids: every id that ends a text.
        is_chat: whether the tokenizer has a chat template.
        suppressed_ids: ids that the verifier's generation config forbids.
    """

    key: str
    title: str
    drafter_model: Model = field(repr=False)
    verifier_model: Model = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    drafter_name: str
    verifier_name: str
    vocabulary_size: int
    context_length: int
    eos_token_ids: frozenset[int]
    is_chat: bool
    suppressed_ids: frozenset[int] = frozenset()

    @cached_property
    def backend(self) -> Backend:
        """The backend of operations over the vocabulary, chosen by the models' device and dtypes at first use."""
        from specviz.core.backend import backend_for  # brings torch

        return backend_for(self.device, self.drafter_model.dtype, self.verifier_model.dtype)

    @cached_property
    def pass_times(self) -> PassTimes:
        """How long forward passes take, measured at first use. Nothing else may run on the models during the measurement."""
        from specviz.runtime.pass_times import measure  # brings torch

        return measure(*self.runners(), self.context_length)

    @property
    def drafter(self) -> PreTrainedModel:
        """The drafter as a transformers model, in eval mode and without gradients; loaded at first use."""
        return self.drafter_model.module()

    @property
    def verifier(self) -> PreTrainedModel:
        """The verifier as a transformers model; see `drafter`."""
        return self.verifier_model.module()

    @property
    def device(self) -> torch.device:
        """The device of token ids: the drafter's device, and that of the verifier's first layer."""
        return self.drafter_model.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the verifier computes."""
        return self.verifier_model.dtype

    @property
    def precision(self) -> str:
        """How the verifier computes, in a word or two: a dtype, or the format of its weights and its activations."""
        return self.verifier_model.precision

    @property
    def repetition_penalty(self) -> float:
        """The repetition penalty of requests that set none, from the verifier's generation config; 1 is off."""
        return float(getattr(self.verifier_model.generation_config, "repetition_penalty", None) or 1.0)

    def runners(self, *, apart: bool = False) -> tuple[Runner, Runner]:
        """New runners of drafter and verifier, without slots. If `apart`, they do not use the buffers that other runners share."""
        size = self.vocabulary_size
        return self.drafter_model.runner(size, apart=apart), self.verifier_model.runner(size, apart=apart)


def pair_from_models(
    drafter: PreTrainedModel,
    verifier: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    drafter_tokenizer: PreTrainedTokenizerBase | None = None,
    key: str = "custom",
    title: str = "",
    drafter_name: str = "",
    verifier_name: str = "",
) -> ModelPair:
    """Make a pair of two loaded causal language models and the verifier's tokenizer.

    Both models are changed: eval mode, no gradients, and eager attention if their scores are softcapped (Gemma 2).

    Args:
        drafter: on the same kind of device as the verifier.
        verifier: the larger model, which scores the draft tokens.
        tokenizer: the verifier's.
        drafter_tokenizer: the drafter's tokenizer, if it has one. It must split every text as `tokenizer` does, but may lack ids or
            have additional ids.
        key, title, drafter_name, verifier_name: as in `ModelPair`. By default, a model's name is its class and size.

    Raises:
        PairError: tokenizers that differ or a tokenizer written in Python, models on different kinds of device, a model that the torch
            runner does not serve, a config without a context length, or a generation config with options that are not served.
    """
    from specviz.models.servable import torch_model

    for model in (drafter, verifier):
        model.eval()
        model.requires_grad_(False)
        # Softcapped scores (Gemma 2) are right in eager attention only; older versions of transformers choose another.
        if getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
            model.set_attn_implementation("eager")
    drafter_name = drafter_name or _class_and_size(drafter)
    verifier_name = verifier_name or _class_and_size(verifier)
    return make_pair(
        torch_model(drafter),
        torch_model(verifier),
        tokenizer,
        drafter_tokenizer=drafter_tokenizer,
        key=key,
        title=title or f"{drafter_name} → {verifier_name}",
        drafter_name=drafter_name,
        verifier_name=verifier_name,
    )


def make_pair(
    drafter: Model,
    verifier: Model,
    tokenizer: PreTrainedTokenizerBase,
    *,
    drafter_tokenizer: PreTrainedTokenizerBase | None = None,
    **names: str,
) -> ModelPair:
    """As `pair_from_models`, for models of any runner. `names` are `ModelPair`'s key, title, drafter_name and verifier_name."""
    small, large = names["drafter_name"], names["verifier_name"]
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise PairError(
            f"The tokenizer of {large}, {type(tokenizer).__name__}, is written in Python; a pair needs one of the "
            "tokenizers library, such as a PreTrainedTokenizerFast."
        )
    if drafter_tokenizer is not None and not share_a_tokenizer(drafter_tokenizer, tokenizer):
        raise PairError(
            f"{small} and {large} have different tokenizers: a pair needs two models that share one."
        )
    if drafter.device.type != verifier.device.type:
        raise PairError(f"{small} and {large} are on different devices: put both on one.")
    generation = verifier.generation_config
    _check_is_served(generation, large)
    ends = generation.eos_token_id
    size = min(1 + max(tokenizer.get_vocab().values()), verifier.output_size)
    return ModelPair(
        drafter_model=drafter,
        verifier_model=verifier,
        tokenizer=tokenizer,
        vocabulary_size=size,
        context_length=min(context_length(drafter.config, small), context_length(verifier.config, large)),
        # As in `generate`: those of the generation config alone, not those of config.json or the tokenizer.
        eos_token_ids=frozenset(ends if isinstance(ends, list | tuple) else () if ends is None else (ends,)),
        is_chat=bool(getattr(tokenizer, "chat_template", None)),
        suppressed_ids=frozenset(each for each in generation.suppress_tokens or () if 0 <= each < size),
        **names,
    )


_UNSERVED: dict[str, Any] = {
    **dict.fromkeys(("sequence_bias", "bad_words_ids", "begin_suppress_tokens", "forced_bos_token_id")),
    **dict.fromkeys(("forced_eos_token_id", "exponential_decay_length_penalty", "watermarking_config")),
    **dict.fromkeys(("constraints", "force_words_ids", "dola_layers", "stop_strings", "max_time")),
    **dict.fromkeys(
        ("min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), 0
    ),
    **dict.fromkeys(("penalty_alpha", "token_healing"), 0),
    **dict.fromkeys(("guidance_scale", "encoder_repetition_penalty", "num_beams", "num_beam_groups"), 1),
}
"""Fields of a generation config that change greedy texts and are not served, with their neutral values; None, [] and {} are neutral too."""


def _check_is_served(config: Any, name: str) -> None:
    """Raise PairError if a generation config sets one of `_UNSERVED`; the sentence names the option and calls the model `name`."""
    for option, idle in _UNSERVED.items():
        value = getattr(config, option, None)
        if value not in (None, [], {}, idle):
            raise PairError(
                f"{name}'s generation config asks for {option}={quoted(value)}, which SpecViz does not serve: remove it "
                "from generation_config.json."
            )


_TRIED = (
    "The quick brown fox.",
    "  two  spaces,\ttab\n\nand 2 lines\n  1. item",
    "3.14159 × 10^23 = 1234567890",
    "naïve café — 日本語 · русский · عربي 🎉👩‍🔬",
    "def f(x):\n    return {x: [x**2 for _ in range(3)]}  # ok != not_ok\n",
)


def share_a_tokenizer(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether the common ids of two tokenizers stand for the same pieces, and both split a few sample texts alike.

    Each may have ids and pieces that the other lacks.
    """
    ids, others = sorted((one.get_vocab(), other.get_vocab()), key=len)
    pieces = {at: piece for piece, at in others.items()}
    same = all(others.get(piece, at) == at and pieces.get(at, piece) == piece for piece, at in ids.items())
    return same and all(one(text)["input_ids"] == other(text)["input_ids"] for text in _TRIED)


def _class_and_size(model: PreTrainedModel) -> str:
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    return f"{type(model).__name__} {millions:.0f}M" if millions >= 1 else type(model).__name__


def context_length(config: Any, name: str) -> int:
    """Number of positions that a model with this config can read; with LongRoPE, at most `exact_length`.

    Raises:
        PairError: the config does not say; the message calls the model `name`.
    """
    from specviz.models.servable import exact_length  # brings torch

    config = config.get_text_config()
    for attribute in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if isinstance(length := getattr(config, attribute, None), int):
            return min(length, exact_length(config) or length)
    raise PairError(
        f"{name} does not say how many positions it can read: set max_position_embeddings in its config."
    )
