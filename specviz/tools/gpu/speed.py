"""How fast beside others on a GPU: the benchmark, on the embedded pair and on random weights at real shapes, in short runs.

Knows which benchmarks to run, and a few of their figures; `tools.bench` measures.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from specviz.errors import SpecvizError
from specviz.files import write_whole
from specviz.progress import silent
from specviz.tools.bench.benchmark import Benchmark, load_bed
from specviz.tools.bench.contenders import COMPILED, CONSTANT, FLASHSPEC, GENERATE, SPEED, VERIFIER_ONLY
from specviz.tools.bench.measurements import Measurements, from_json, to_json
from specviz.tools.bench.options import BenchmarkOptions
from specviz.tools.gpu.job import Job, environment
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import NONE, Rows

_ALL = ("verifier_only", "speed", "generate", "generate-compiled", "assisted-constant", "flashspec")
_OURS = ("verifier_only", "speed")
_SHOWN = (VERIFIER_ONLY, SPEED, GENERATE, COMPILED, CONSTANT, FLASHSPEC)
_ACCEPTANCE = 0.7
_FILE = "4-benchmarks.json"
"""Everything that was measured, for `bench --from`."""


def measure(job: Job, record: Record) -> None:
    """Run the benchmarks that have not been run: everybody beside us, then ourselves without captures and with transformers' passes."""
    pairs: dict[str, dict[str, Any]] = {} if job.tiny else {"embedded": {}}
    pairs |= {" → ".join(names): {"shape": names, "acceptance": _ACCEPTANCE} for names in job.shapes}
    runs: list[tuple[str, dict[str, Any], tuple[str, ...], bool, bool]] = [
        (name, options, _ALL, True, True) for name, options in pairs.items()
    ]
    for name, options in list(pairs.items())[:2]:
        runs.append((f"{name}, not captured", options, _OURS, False, True))
        runs.append((f"{name}, transformers' passes", options, _OURS, True, False))
    for name, options, contenders, graphs, kernels in runs:
        with environment(graphs=graphs, kernels=kernels):
            record.step(name, partial(_run, job, record, name, contenders, options))


def table(steps: dict[str, Found]) -> Rows:
    """Median tokens a second of each contender, and ours over theirs."""
    rows: Rows = [("tokens/s", *_SHOWN, "accepted", "speed ÷ the best other")]
    for name, found in steps.items():
        if "error" in found:
            rows.append((name, found["error"], *[NONE] * (len(_SHOWN) + 1)))
            continue
        speeds = found["speeds"]
        others = [speeds[each] for each in _SHOWN[2:] if speeds.get(each)]
        cells = [f"{speeds[each]:.0f}" if speeds.get(each) else NONE for each in _SHOWN]
        ratio = f"{speeds[SPEED] / max(others):.2f}" if others and speeds.get(SPEED) else NONE
        rows.append((name, *cells, f"{found['accepted'] or 0:.2f}", ratio))
    return rows


def _run(job: Job, record: Record, name: str, contenders: tuple[str, ...], options: dict[str, Any]) -> Found:
    size: dict[str, Any] = {"tokens": 64, "prompts": 4, "temperatures": (1.0,)}
    if job.tiny:
        size = {"tokens": 6, "prompts": 1, "temperatures": (1.0,)}
    asked = BenchmarkOptions(
        contenders=contenders, device=str(job.device), repetitions=1, draft_length=4, **size | options
    )
    with record.until_the_end() as stop:
        bench = Benchmark(asked, load_bed(asked, silent), silent, stop).run()
    if not bench.complete:
        raise SpecvizError("There was no time to end it." if stop.is_set() else bench.notes[-1])
    bench.notes.insert(0, f"{name}.")
    path = job.out / _FILE
    before = from_json(path.read_text(encoding="utf-8")) if path.is_file() else []
    write_whole(path, to_json([*before, bench]))
    return {"speeds": _speeds(bench), "accepted": bench.acceptance(SPEED, bench.temperatures[0])}


def _speeds(bench: Measurements) -> dict[str, float]:
    found = {party.name: bench.speed(party.name) for party in bench.present}
    return {name: round(speed.median, 1) for name, speed in found.items() if speed is not None}
