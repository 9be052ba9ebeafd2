"""The settings of a distillation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from specviz.errors import RequestError
from specviz.files import write_whole


@dataclass(frozen=True)
class DistillationSettings:
    """What to distil and how; `specviz distill --help` describes each setting.

    Attributes:
        verifier: key of the pair whose verifier is the teacher.
        start: folder of a drafter to continue from, with its own layers and vocabulary; "" starts from the verifier's weights.
        skills: number of questions with known answers that the drafter in `start` learns; on the texts it keeps its former distributions.
            0 trains on the texts alone.
        four_bits: train with matrices rounded to Q4_1, and store them in this format; if False, they are stored as Q8_0.

    Raises:
        RequestError: there are `skills`, but no drafter to `start` from.
    """

    verifier: str
    layers: tuple[int, ...] = (0, -2, -1)
    vocabulary: int = 12_288
    start: str = ""
    skills: int = 0
    texts: tuple[str, ...] = ()
    tokens: int = 1_000_000
    answer_tokens: int = 224
    rows: int = 128
    passes: int = 8
    batch_tokens: int = 2048
    learning_rate: float = 1e-3
    four_bits: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.skills and not self.start:
            raise RequestError("skills are taught to a trained drafter: name its folder as start.")

    def save(self, directory: Path) -> None:
        """Write the settings to `directory`, which is created if necessary.

        Raises:
            RequestError: the directory has a distillation with other settings.
        """
        path, text = directory / "plan.json", json.dumps(asdict(self), indent=2) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise RequestError(
                f"{directory} holds a distillation with other settings: repeat those to resume it, or name another directory."
            )
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
