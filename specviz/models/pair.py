"""A loaded model pair: a drafter and a verifier over one tokenizer, and what makes two models a pair.

Knows models and tokenizers in memory. It knows neither where they came from nor how text is generated with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import TypeVar  # with a default, which `typing` has since Python 3.13 only

from specviz.errors import PairError

if TYPE_CHECKING:  # they take seconds, and an unknown pair is refused without them
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(eq=False)
class ModelPair:
    """A drafter and a verifier, ready to run: in eval mode, without gradients, over one tokenizer's ids.

    Attributes:
        key: the registry's key, or a name of one's own.
        vocabulary_size: ids 0 … vocabulary_size − 1 are shared by both models and the tokenizer; logits beyond are
            padding, to be cut off.
        context_length: number of positions that both models can read.
        eos_token_ids: every id that ends a text.
        is_chat: whether the tokenizer has a chat template.
    """

    key: str
    title: str
    drafter: PreTrainedModel = field(repr=False)
    verifier: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    drafter_name: str
    verifier_name: str
    vocabulary_size: int
    context_length: int
    eos_token_ids: frozenset[int]
    is_chat: bool

    @property
    def device(self) -> torch.device:
        """The device that takes token ids: the drafter's, and that of the verifier's first layer."""
        return next(self.drafter.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the verifier's parameters."""
        return next(self.verifier.parameters()).dtype


P = TypeVar("P", bound=ModelPair, default=ModelPair)


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
    kind: type[P] = ModelPair,  # type: ignore[assignment]  # it is P's default
) -> P:
    """Make a pair of two loaded causal language models and the verifier's tokenizer.

    Both models are changed: put into eval mode, their gradients switched off.

    Args:
        drafter: on the same kind of device as the verifier.
        verifier: the larger model, which scores the draft tokens.
        tokenizer: the verifier's.
        drafter_tokenizer: the drafter's, where it came with its own; it must split every text as `tokenizer` does.
        key: as in `ModelPair`.
        title: both names by default.
        drafter_name: the model's class and size by default.
        verifier_name: likewise.
        kind: the class of the pair.

    Raises:
        PairError: tokenizers that differ, models on different kinds of device, or a config without a context length.
    """
    drafter_name = drafter_name or _class_and_size(drafter)
    verifier_name = verifier_name or _class_and_size(verifier)
    if drafter_tokenizer is not None and not same_tokenizer(drafter_tokenizer, tokenizer):
        raise PairError(
            f"{drafter_name} and {verifier_name} have different tokenizers: a pair needs two models that "
            "share one."
        )
    if drafter.device.type != verifier.device.type:
        raise PairError(f"{drafter_name} and {verifier_name} are on different devices: put both on one.")
    for model in (drafter, verifier):
        model.eval()
        model.requires_grad_(False)
        # Softcapped scores (Gemma 2) are right in eager attention only; older versions of transformers choose another.
        if getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
            model.set_attn_implementation("eager")
    return kind(
        key=key,
        title=title or f"{drafter_name} → {verifier_name}",
        drafter=drafter,
        verifier=verifier,
        tokenizer=tokenizer,
        drafter_name=drafter_name,
        verifier_name=verifier_name,
        vocabulary_size=min(len(tokenizer), output_size(drafter), output_size(verifier)),
        context_length=min(context_length(drafter, drafter_name), context_length(verifier, verifier_name)),
        eos_token_ids=_eos_token_ids(verifier, tokenizer),
        is_chat=bool(getattr(tokenizer, "chat_template", None)),
    )


_TRIED = (
    "The quick brown fox.",
    "  two  spaces,\ttab\n\nand 2 lines\n  1. item",
    "3.14159 × 10^23 = 1234567890",
    "naïve café — 日本語 · русский · عربي 🎉👩‍🔬",
    "def f(x):\n    return {x: [x**2 for _ in range(3)]}  # ok != not_ok\n",
)


def same_tokenizer(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers have the same ids for the same pieces and split texts, as far as is tried, alike."""
    if one.get_vocab() != other.get_vocab():
        return False
    return all(one(text)["input_ids"] == other(text)["input_ids"] for text in _TRIED)


def _class_and_size(model: PreTrainedModel) -> str:
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    return f"{type(model).__name__} {millions:.0f}M" if millions >= 1 else type(model).__name__


def output_size(model: PreTrainedModel) -> int:
    """Number of logits that a model returns, padding included."""
    head = model.get_output_embeddings()
    return int(getattr(head, "out_features", None) or model.config.get_text_config().vocab_size)


def context_length(model: PreTrainedModel, name: str) -> int:
    """Number of positions that a model can read.

    Raises:
        PairError: its config does not say; the sentence calls the model `name`.
    """
    config = model.config.get_text_config()
    for attribute in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if isinstance(length := getattr(config, attribute, None), int):
            return length
    raise PairError(
        f"{name} does not say how many positions it can read: set max_position_embeddings in its config."
    )


def _eos_token_ids(verifier: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a text: the verifier's generation config may have several, the tokenizer has one."""
    configured = verifier.generation_config.eos_token_id if verifier.generation_config else None
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(int(it) for it in (*several, tokenizer.eos_token_id) if it is not None)
