"""What all stages share: where results go, on which device, at which size; and pairs to measure. Measures nothing itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from specviz.errors import RequestError
from specviz.models.loading import load_pair
from specviz.models.modules import tune
from specviz.models.pair import ModelPair
from specviz.models.placement import find_device
from specviz.runtime.cuda.decoder import VARIABLE
from specviz.tools.bench.shapes import shape_pair, tuned_twin

Shapes = tuple[str, str]
"""Names of a drafter's and a verifier's shape."""

SHAPES: tuple[Shapes, ...] = (
    ("qwen2.5-0.5b", "qwen2.5-7b"),
    ("llama-3.2-1b", "llama-3.1-8b"),
    ("gemma-2-2b", "gemma-2-9b"),
)
TINY: tuple[Shapes, ...] = tuple(
    (f"tiny-{family}", f"tiny-{family}") for family in ("qwen2", "llama", "gemma2")
)


@dataclass(frozen=True)
class Job:
    """What to do where.

    Attributes:
        out: the folder of results, of files of at most 16 MB each.
        device: where to measure.
        tiny: with tiny random models and a few tokens, to rehearse on a CPU.
    """

    out: Path
    device: torch.device
    tiny: bool = False

    @staticmethod
    def of(out: Path, device: str = "auto", tiny: bool = False) -> Job:
        """A job on the device of that name.

        Raises:
            RequestError: it is no GPU, and not all is tiny.
            PairError: it is not available here.
        """
        found = find_device(device)
        if found.type != "cuda" and not tiny:
            raise RequestError("There is no GPU here: add --tiny to rehearse on a CPU with tiny models.")
        out.mkdir(parents=True, exist_ok=True)
        return Job(out, found, tiny)

    @property
    def shapes(self) -> tuple[Shapes, ...]:
        """The shapes of pairs with random weights, of three families."""
        return TINY if self.tiny else SHAPES

    @property
    def dtype(self) -> torch.dtype:
        """In which models are measured."""
        return torch.float32 if self.device.type == "cpu" else torch.bfloat16

    def of_shapes(self, names: Shapes) -> tuple[ModelPair, ModelPair]:
        """A pair with random weights: as transformers makes it, and tuned, sharing all weights."""
        plain = shape_pair(*names, self.device, self.dtype)
        return plain, tuned_twin(plain, tune)

    def embedded(self, device: torch.device, dtype: str) -> ModelPair:
        """The embedded pair; where all is tiny, one of random weights, the same on every device."""
        if not self.tiny:
            return load_pair("embedded", device=str(device), dtype=dtype)
        pair = shape_pair(*TINY[1], torch.device("cpu"), getattr(torch, dtype))
        for model in (pair.drafter, pair.verifier):
            torch.nn.Module.to(model, device)
        return pair


@contextmanager
def environment(*, graphs: bool = True, kernels: bool = True) -> Iterator[None]:
    """For a while, whether passes are captured, and whether models loaded now get kernels of ours. For the whole process."""
    wanted = {"SPECVIZ_GRAPHS": "1" if graphs else "0", VARIABLE: "kernels" if kernels else "torch"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
