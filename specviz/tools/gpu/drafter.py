"""Distilling the embedded pair's drafter from many more tokens than a CPU can write, and its acceptance by tokens learned from.

`tools.distill` does the work in a folder of the cache; the verifier's texts also go to the results in small files, so that
another machine goes on from them. Knows one distillation.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from specviz.errors import StoppedError
from specviz.files import cache_directory
from specviz.tools.distill.distillation import Distillation
from specviz.tools.distill.settings import DistillationSettings, Shape
from specviz.tools.distill.texts import Texts
from specviz.tools.gpu.job import Job, environment
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import Rows

_SETTINGS: dict[str, Any] = {
    "shape": Shape(layers=(0, 28, 29), vocabulary=10_240),
    "four_bits": True,
    "passes": 1,  # no text twice: what is learned from next is a text held out
    "tokens": 20_000_000,
    "rows": 1024,
    "batch_tokens": 16_384,
    "remember_gigabytes": 0.0,
}
_TINY = {"tokens": 400, "rows": 4, "batch_tokens": 512, "answer_tokens": 16}
_RESERVE = 25.0
"""Seconds for stopping and for writing the results."""
_PACKED_TOKENS = 6_000_000
"""Of a file of texts: at most 12 MB."""
_CURVE_STEPS = 50
"""Steps between two points of the curve (`tools.distill.training`)."""


def measure(job: Job, record: Record) -> None:
    """Distil, or go on, until done or until the time is over."""
    with environment():
        record.step("distillation", lambda: _distil(job, record))


def table(steps: dict[str, Found]) -> Rows:
    """The curve, and the acceptance rates on prompts held out."""
    rows: Rows = [("the drafter", "acceptance")]
    for found in steps.values():
        if "error" in found:
            rows.append(("so far", f"{found.get('texts', 0):,} tokens of text; {found['error']}"))
            continue
        rows += [
            (f"{millions:.2f} M tokens learned from, T = 1", f"{rate:.3f}")
            for millions, rate in found["curve"]
        ]
        rows += [(f"held-out prompts, {name}", f"{rate:.3f}") for name, rate in found["held_out"].items()]
    return rows


def _distil(job: Job, record: Record) -> Found:
    folder = cache_directory() / ("gpu-drafter-tiny" if job.tiny else "gpu-drafter")
    settings = DistillationSettings("embedded", **_SETTINGS | (_TINY if job.tiny else {}))
    texts = folder / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    unpack(job.out, texts)
    with record.until_the_end(_RESERVE) as stop:
        work = Distillation(settings, folder, device=str(job.device), progress=record.progress, stop=stop)
        try:
            report = work.run()
        except StoppedError as error:
            return {"error": str(error), "texts": pack(texts, job.out)}
    pack(texts, job.out)
    shutil.copytree(folder / "student", job.out / "drafter", dirs_exist_ok=True)
    learned = settings.batch_tokens * _CURVE_STEPS / 1e6
    curve = [(learned * number, rate) for number, rate in enumerate(report["agreement_every_50_steps"])]
    return {name: report[name] for name in ("tokens", "start", "held_out", "cost")} | {
        "curve": curve[:: max(1, len(curve) // 12)]
    }


def pack(texts: Path, out: Path) -> int:
    """Write the texts of a distillation to files of at most 12 MB in `out`; returns the tokens that were written by the verifier.

    Token ids are taken to be below 65,536.
    """
    parts: dict[str, np.ndarray] = {}
    size = number = written = 0

    def flush() -> None:
        nonlocal parts, size, number
        if parts:
            partial = out / f"texts-{number:02d}.part.npz"
            np.savez_compressed(partial, **parts)  # type: ignore[arg-type]
            partial.rename(out / f"texts-{number:02d}.npz")
            parts, size, number = {}, 0, number + 1

    for path in sorted(texts.glob("texts-*.safetensors")):
        each = Texts.load(path)
        ids = np.array([token for sequence in each.sequences for token in sequence], np.uint16)
        if size + len(ids) > _PACKED_TOKENS:
            flush()
        parts |= {
            f"{path.stem}/tokens": ids,
            f"{path.stem}/lengths": np.array([len(sequence) for sequence in each.sequences], np.int32),
            f"{path.stem}/starts": np.array(each.starts, np.int32),
        }
        size, written = size + len(ids), written + each.written
    flush()
    return written


def unpack(out: Path, texts: Path) -> None:
    """Bring the texts that `pack` wrote back to where a distillation looks for them."""
    for file in sorted(out.glob("texts-??.npz")):
        with np.load(file, allow_pickle=False) as parts:
            for name in sorted({key.partition("/")[0] for key in parts.files}):
                path = texts / f"{name}.safetensors"
                if path.exists():
                    continue
                ends = np.cumsum(parts[f"{name}/lengths"])[:-1]
                sequences = [part.tolist() for part in np.split(parts[f"{name}/tokens"], ends)]
                Texts(sequences, parts[f"{name}/starts"].tolist()).save(path)
