"""The private and undocumented names of transformers that SpecViz needs, as of 5.20 to 5.24.

Does not import transformers' modelling code, which takes seconds; `transformers_attention` does.
"""

from __future__ import annotations

import inspect
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from huggingface_hub import utils as hub_utils
from transformers.utils import logging

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel


def attention_of(model: PreTrainedModel) -> str | None:
    """The name of the attention that a model runs: "sdpa", "eager", …

    `attn_implementation` and `set_attn_implementation` set it; transformers has no public name to read it.
    """
    return model.config._attn_implementation


def cache_argument(kind: type) -> str:
    """Name of the argument of a model class's `forward` that takes the cache: "cache" since transformers 5.24, else "past_key_values"."""
    names = inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]
    return "cache" if "cache" in names else "past_key_values"


def is_stateful(kind: type) -> bool:
    """Whether a model class has a state besides keys and values, from which tokens cannot be removed. No public name says so."""
    return bool(getattr(kind, "_is_stateful", False))


def padding_id(config: GenerationConfig) -> int | None:
    """The id that `generate` pads with. `generate` stores its final choice only in private tensors of the config."""
    padding = config._pad_token_tensor
    return None if padding is None else int(padding.item())


def eos_ids(config: GenerationConfig) -> frozenset[int]:
    """The ids at which `generate` ends a text; see `padding_id`."""
    ends = config._eos_token_tensor
    return frozenset() if ends is None else frozenset(ends.tolist())


def generate_arguments() -> dict[str, Any]:
    """Arguments of the innermost `generate` on the call stack, by name; empty if there is none.

    `generate` passes a `custom_generate` function neither `streamer`, `assistant_model`, `synced_gpus` nor
    `assistant_tokenizer`, nor does it say whether it made the cache. So these are read from the frame of `generate`, and from
    the frame of its decorator, which still has all keyword arguments.
    """
    # Imported here because it is modelling code. If there is a model, this is already imported.
    from transformers import GenerationMixin

    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    if frame is None:
        return {}
    given, function = dict[str, Any](), GenerationMixin.generate
    while (decorator := frame.f_back) is not None and function is not None:
        if function.__code__ is decorator.f_code:
            given = decorator.f_locals.get("kwargs", {})
            break
        function = getattr(function, "__wrapped__", None)
    return {**frame.f_locals, **given}


class _Quiet:
    """A context manager for any number of threads and any nesting: the first block to begin silences transformers and
    huggingface_hub, in every thread of the process. The last block to end restores the settings that the first found.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._verbosities = logging.get_verbosity(), hub_utils.logging.get_verbosity()
            self._bars = logging.is_progress_bar_enabled(), not hub_utils.are_progress_bars_disabled()
            logging.set_verbosity_error()
            hub_utils.logging.set_verbosity_error()
            logging.disable_progress_bar()  # of both libraries

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            logging.set_verbosity(self._verbosities[0])
            hub_utils.logging.set_verbosity(self._verbosities[1])
            bars, hub_bars = self._bars
            if bars:
                logging.enable_progress_bar()  # of both libraries again
            if hub_bars != bars:
                (hub_utils.enable_progress_bars if hub_bars else hub_utils.disable_progress_bars)()


quiet_transformers = _Quiet()
"""`with quiet_transformers:` neither transformers nor huggingface_hub warns or draws progress bars, in any thread; only their
errors are logged."""
