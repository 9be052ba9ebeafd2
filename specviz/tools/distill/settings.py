"""What to distil and how, and what its stages share: stopping, and the time left. Knows no model."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from specviz.errors import RequestError, StoppedError
from specviz.files import write_whole

_PLAN = "plan.json"


@dataclass(frozen=True)
class Shape:
    """A student's architecture.

    Attributes:
        layers: indices of the verifier layers that it is initialised from, negative ones from the end; or
        depth, width: of a new llama, whose embedding is the verifier's, reduced by singular values.
        vocabulary: size of its vocabulary; 0 for the verifier's.
    """

    layers: tuple[int, ...] = ()
    depth: int = 0
    width: int = 0
    vocabulary: int = 0

    @staticmethod
    def parse(text: str, vocabulary: int) -> Shape:
        """Read "layers:0,-2,-1" or "narrow:4x256".

        Raises:
            RequestError: anything else.
        """
        kind, _, rest = text.partition(":")
        with suppress(ValueError):
            if kind == "layers":
                return Shape(layers=tuple(map(int, rest.split(","))), vocabulary=vocabulary)
            depth, width = map(int, rest.split("x"))
            if kind == "narrow" and depth > 0 and width > 0 and width % 64 == 0:
                return Shape(depth=depth, width=width, vocabulary=vocabulary)
        raise RequestError(
            f"{text!r} is no shape: write layers:0,-2,-1 (layers of the verifier) or narrow:4x256 (depth x width, "
            "a multiple of 64)."
        )

    def __str__(self) -> str:
        layers = ",".join(map(str, self.layers))
        body = f"narrow:{self.depth}x{self.width}" if self.width else f"layers:{layers}"
        return f"{body}, {self.vocabulary or 'all'} tokens"


@dataclass(frozen=True)
class DistillationSettings:
    """What to distil and how.

    Attributes:
        verifier: key of the pair whose verifier is the teacher.
        shape: of the student.
        start: folder of a drafter to go on from, which then has its own shape; "" to begin with the verifier's weights.
        texts: folders of texts to learn from (`Texts.read`).
        tokens: of the verifier's to learn from; it writes those that `texts` lack.
        answer_tokens: maximum for one answer.
        rows: answers written in one batch.
        passes: epochs.
        batch_tokens: in one optimizer step, padding included.
        learning_rate: at its peak.
        four_bits: whether every pass takes the student's matrices rounded as they will be stored (`rounding`).
        seed: of everything random.
        remember_gigabytes: memory for the verifier's hidden states, which then need not be computed in every epoch.
    """

    verifier: str
    shape: Shape
    start: str = ""
    texts: tuple[str, ...] = ()
    tokens: int = 1_000_000
    answer_tokens: int = 224
    rows: int = 128
    passes: int = 8
    batch_tokens: int = 2048
    learning_rate: float = 1e-3
    four_bits: bool = False
    seed: int = 0
    remember_gigabytes: float = 4.0

    @property
    def format(self) -> str:
        """In which the student's matrices are stored, by GGUF's name."""
        return "Q4_1" if self.four_bits else "Q8_0"

    def check(self, directory: Path) -> None:
        """Check that `directory`, if there is one, was made with the same settings.

        Raises:
            RequestError: it holds a distillation with other settings.
        """
        path, mine = directory / _PLAN, json.loads(json.dumps(asdict(self)))
        if path.exists() and json.loads(path.read_text(encoding="utf-8")) != mine:
            raise RequestError(
                f"{directory} holds a distillation with other settings: give the same ones to go on, or another directory."
            )

    def open(self, directory: Path) -> None:
        """Make `directory`, unless there is one, for these settings."""
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / _PLAN, json.dumps(asdict(self), indent=2) + "\n")


def raise_if_stopped(stop: threading.Event) -> None:
    """Raise StoppedError if `stop` is set."""
    if stop.is_set():
        raise StoppedError("Stopped; start it again with the same settings to go on.")


def time_left(left: float, rate: float, unit: str) -> str:
    """The rate in `unit` a second and the time for what is left, to be appended; "" before there is a rate."""
    if rate <= 0:
        return ""
    minutes, seconds = divmod(round(left / rate), 60)
    return f", {rate:,.1f} {unit}/s, {minutes}:{seconds:02d} left"
