"""The benchmark: its arithmetic on numbers made by hand, and a whole one on tiny models. No figure is judged."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specviz import __main__ as shell
from specviz.engine.engine import Engine
from specviz.errors import EngineError, RequestError
from specviz.files import write_whole
from specviz.models.pair import ModelPair
from specviz.runtime.model_runner import TorchModel, position_bytes
from specviz.schema.settings import Request
from specviz.tools.bench import benchmark, contender, contenders, probes, shapes
from specviz.tools.bench.benchmark import Benchmark
from specviz.tools.bench.contender import Bed
from specviz.tools.bench.contenders import GENERATE, VERIFIER_ONLY, speed_at
from specviz.tools.bench.measurements import (
    Forwards,
    Measurements,
    Overhead,
    Participant,
    Sample,
    bound,
    common_prefix,
    from_json,
    to_json,
)
from specviz.tools.bench.options import BenchmarkOptions, choose_prompts
from specviz.tools.bench.report import markdown, tables
from specviz.tools.distill.prompts import held_out_by_kind
from tests.support.tiny import tiny_pair


@pytest.fixture(scope="module")
def tiny_pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelPair, ModelPair]:
    """The same small pair twice: to be used by us, and by others. One vocabulary, no padding, as they need."""
    sizes: Any = {"drafter_padding": 0, "verifier_padding": 0, "dtype": torch.float32}
    ours, plain = (tiny_pair("llama", tmp_path_factory.mktemp("pair"), **sizes) for _ in range(2))
    return ours, plain


@pytest.fixture
def bed(tiny_pairs: tuple[ModelPair, ModelPair]) -> Bed:
    return Bed(*tiny_pairs, threads=1, draft_length=2)


@pytest.fixture
def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the large reads that measure a memory's bandwidth."""
    monkeypatch.setattr(benchmark, "bandwidth", lambda _device: 1e10)
    monkeypatch.setattr(probes, "MemoryReader", lambda _device: SimpleNamespace(read=lambda: 1e10))


def _options(**changes: Any) -> BenchmarkOptions:
    small: dict[str, Any] = {
        "prompts": 2,
        "tokens": 8,
        "draft_lengths": (1, 2),
        "draft_length": 2,
        "threads": 1,
    }
    return BenchmarkOptions(**small | changes)


def _ignore(_fraction: float, _text: str) -> None:
    pass


def _bench(samples: list[Sample]) -> Measurements:
    words = dict.fromkeys(
        ("pair", "drafter", "verifier", "device", "machine", "processor", "date", "command", "dtype"), "x"
    )
    numbers = dict.fromkeys(("threads", "tokens", "repetitions", "draft_length", "seed"), 1)
    names = list(dict.fromkeys(sample.contender for sample in samples))
    return Measurements(
        **words,  # type: ignore[arg-type]
        **numbers,  # type: ignore[arg-type]
        versions={},
        temperatures=[0.0, 1.0],
        draft_lengths=[1],
        notes=[],
        prompts=["a", "b"],
        parties=[Participant(name, "", True, 1) for name in names],
        samples=samples,
    )


def _sample(contender: str, prompt: int, seconds: float, temperature: float = 0.0, **more: Any) -> Sample:
    usual: dict[str, Any] = {"token_ids": [1, 2, 3, 4], "first_token_seconds": None, "rounds": 2}
    usual |= {"examined": None, "accepted": None, "memory": None, "kind": "facts", "repetition": 0}
    return Sample(
        contender=contender, prompt=prompt, temperature=temperature, seconds=seconds, **usual | more
    )


# ---- arithmetic --------------------------------------------------------------------------------------------


def test_ratios_are_taken_between_runs_of_one_prompt_temperature_and_repetition() -> None:
    """The median of ratios, not the ratio of medians; what has no partner counts nowhere."""
    made = _bench(
        [
            *(_sample("a", 0, 1.0), _sample("a", 1, 4.0), _sample("a", 0, 1.0, 1.0)),
            *(_sample("b", 0, 2.0), _sample("b", 1, 4.0), _sample("b", 5, 9.0, 1.0)),
        ]
    )
    assert made.ratios("a", "b", 0.0) == [2.0, 1.0]
    assert made.ratios("a", "b", 1.0) == []
    speed = made.speed("b", 0.0)
    assert speed is not None
    assert speed.median == 1.5


def test_acceptance_pools_all_proposals_and_block_efficiency_all_rounds() -> None:
    made = _bench(
        [
            _sample("a", 0, 1.0, examined=10, accepted=1, rounds=4),
            _sample("a", 1, 1.0, examined=2, accepted=2, rounds=1),
        ]
    )
    assert made.acceptance("a", 0.0) == 3 / 12
    assert made.block_efficiency("a", 0.0) == 8 / 5
    assert made.acceptance("nobody", 0.0) is None


def test_agreement_counts_greedy_texts_that_are_the_same_to_the_end() -> None:
    made = _bench(
        [
            *(_sample("a", 0, 1.0), _sample("a", 1, 1.0, token_ids=[1, 2, 9, 4])),
            *(_sample("b", 0, 1.0), _sample("b", 1, 1.0)),
        ]
    )
    assert made.agreement("a", "b") == (1, 2, 0.5)
    assert common_prefix([1, 2, 3], [1, 2]) == 2


def test_the_bound_is_what_acceptance_and_bare_passes_allow() -> None:
    """Three proposals at a = 1/2 give 1.75 tokens, for 3 drafter passes and 4.4 instead of 4 a token; not to draft gains 1."""
    gain, k = bound(0.5, 0.1, [4.0, 4.2, 4.4])
    assert k == 3
    assert gain == pytest.approx(1.75 * 4 / (3 * 0.1 + 4.4))
    assert bound(0.1, 3.0, [4.0, 5.0]) == (1.0, 0)


def test_the_floor_is_bytes_over_bandwidth_and_overhead_what_passes_leave_of_a_round() -> None:
    forwards = Forwards(10, 0.1, [1.0], drafter_bytes=100, verifier_bytes=700, bandwidth=1000.0)
    assert forwards.floor(0) == 0.7
    assert forwards.floor(3) == 1.0
    assert forwards.share is None
    forwards.beside.extend(
        [[1.0, 1000.0], [2.0, 500.0], [0.5, 1000.0]]
    )  # seconds, and the bandwidth right after
    assert forwards.share is not None
    assert forwards.share.median == pytest.approx(0.7)
    share = Overhead("a", 0, 3, [2, 2, 3], [1.0, 2.0, 4.0], [0.9, 1.9, 3.0]).share
    assert share is not None
    assert share.median == pytest.approx(0.1)


def test_a_pass_reads_all_weights_but_tables_and_a_tied_one_whole(tmp_path: Path) -> None:
    untied, tied = (tiny_pair(family, tmp_path / family).verifier for family in ("llama", "opt"))
    table = untied.get_input_embeddings().weight
    whole = sum(weight.numel() for weight in untied.parameters()) * 8
    assert TorchModel(untied).weight_bytes == whole - table.numel() * 8
    positions = tied.base_model.decoder.embed_positions.weight
    whole = sum(weight.numel() for weight in tied.parameters()) * 8
    assert TorchModel(tied).weight_bytes == whole - positions.numel() * 8
    assert position_bytes(untied) == 2 * 2 * 2 * 8 * 8  # keys and values, layers, shared heads, size, bytes


# ---- a whole benchmark -------------------------------------------------------------------------------------


@pytest.fixture
def small_bed(bed: Bed, no_probes: None, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """The command loads the tiny pair; what stands for other packages is left alone."""
    monkeypatch.setattr(benchmark, "load_bed", lambda _plan, _progress: bed)
    return bed


def test_a_whole_benchmark_writes_json_markdown_and_a_figure(
    small_bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lossless contenders write one greedy text; who is missing is reported, and left out; nothing half-written stays."""
    monkeypatch.setattr(contenders, "find_spec", lambda _name: None)
    files = {name: tmp_path / f"bench.{name}" for name in ("json", "markdown", "figure")}
    outputs = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    command = ["bench", "--tokens", "8", "--prompts", "2", "--draft-lengths", "1", "2", "--draft-length", "2"]
    assert shell.main([*command, *outputs]) == 0
    printed = capsys.readouterr().out
    assert "The package flashspec is not installed" in printed
    [found] = from_json(files["json"].read_text())
    assert found.complete
    assert found.command == "python -m specviz " + " ".join(
        ["bench", *command[1:3], *command[3:5], *command[5:]]
    )
    here = {party.name for party in found.present}
    assert contenders.FLASHSPEC not in here
    assert {VERIFIER_ONLY, contenders.SPEED, speed_at(2), GENERATE, contenders.CONSTANT} <= here
    for party in found.present:
        assert len(found.of(party.name)) == 4
        assert {len(sample.token_ids) for sample in found.of(party.name)} == {8}
        if party.lossless:
            assert found.agreement(party.name, GENERATE) == (2, 2, 1.0), party.name
    report = files["markdown"].read_text()
    assert all(f"### {table.title}" in report for table in tables(found))
    assert "Incomplete" not in report
    figure = files["figure"].read_text()
    assert "plotly" in figure
    assert "<script src=" not in figure
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files.values())
    # What was saved can be reported again, beside another, without measuring.
    again = tmp_path / "again.md"
    assert (
        shell.main(["bench", "--from", str(files["json"]), str(files["json"]), "--markdown", str(again)]) == 0
    )
    assert again.read_text().count("\n## ") == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="flashspec has no release for Python 3.10")
def test_flashspec_writes_the_verifiers_greedy_text(bed: Bed) -> None:
    [theirs] = contenders.contenders(bed, ("flashspec",), ())
    [own] = contenders.contenders(bed, ("verifier_only",), ())
    asked = Request(token_ids=[5, 6, 7], temperature=0.0, max_new_tokens=9)
    measured = theirs.run(asked)
    assert measured.token_ids == own.run(asked).token_ids
    assert measured.accepted is not None
    assert measured.examined is not None
    assert measured.accepted <= measured.examined


def test_a_contender_that_breaks_off_leaves_and_the_others_go_on(
    bed: Bed, no_probes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def breaks(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 5:  # after the warm-up
            raise RuntimeError("no more\nand a second line")
        return original(self, *arguments)

    original = contenders.Generate.run
    monkeypatch.setattr(contenders.Generate, "run", breaks)
    found = Benchmark(_options(contenders=("verifier_only", "generate")), bed, _ignore).run()
    [party] = [party for party in found.parties if party.name == GENERATE]
    assert party.absent == "It broke off: RuntimeError: no more."
    assert len(found.of(VERIFIER_ONLY)) == 4
    assert found.complete


def test_a_stop_keeps_what_was_measured_and_says_so(
    small_bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status is that of an interrupt; the files are whole."""
    runs: list[int] = []
    original = contender.Ours.run

    def run(self: Any, *arguments: Any) -> Any:
        runs.append(1)
        if len(runs) == 4:
            stop.set()
        return original(self, *arguments)

    stop = threading.Event()
    monkeypatch.setattr("specviz.cli.bench.interrupt", lambda: nullcontext(stop))
    monkeypatch.setattr(contender.Ours, "run", run)
    file, report = tmp_path / "bench.json", tmp_path / "bench.md"
    command = ["bench", "--contenders", "verifier_only", "--tokens", "8", "--prompts", "2"]
    assert shell.main([*command, "--json", str(file), "--markdown", str(report)]) == 130
    assert "Incomplete" in capsys.readouterr().out
    [found] = from_json(file.read_text())
    assert not found.complete
    assert len(found.samples) == 2
    assert "**Incomplete" in report.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.md"}


def test_our_own_failure_is_told_and_keeps_what_was_measured(
    bed: Bed, no_probes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    original = contender.Ours.run

    def run(self: Any, *arguments: Any) -> Any:
        runs.append(1)
        if len(runs) == 4:  # two to warm up
            raise EngineError("Memory ran out.")
        return original(self, *arguments)

    monkeypatch.setattr(contender.Ours, "run", run)
    found = Benchmark(_options(contenders=("verifier_only",)), bed, _ignore).run()
    assert not found.complete
    assert len(found.samples) == 1
    assert "It broke off: Memory ran out." in markdown([found])


def test_what_cannot_be_measured_or_written_is_said_before_anything_is_loaded(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmark, "load_bed", lambda *_: pytest.fail("loaded"))
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"schema": "specviz-bench", "version": 1, "benches": [{}]}')
    for arguments, sentence in (
        (["--json", str(tmp_path / "no" / "file")], "--json cannot be written there"),
        (["--contenders", "magic"], "no contender 'magic'"),
        (["--prompts", "0"], "Prompts: 0"),
        (["--draft-lengths", "1", "99"], "A draft length: 99"),
        (["--acceptance", "0.5"], "--shape only"),
        (["--from", str(damaged)], "no file of measurements"),
        (["--from", str(tmp_path / "none.json")], "cannot be read"),
    ):
        assert shell.main(["bench", *arguments]) == 2
        printed = capsys.readouterr()
        assert sentence in printed.err
        assert "Traceback" not in printed.err


def test_prompts_are_held_out_and_their_kinds_take_turns() -> None:
    held_out = held_out_by_kind()
    chosen = choose_prompts(2 * len(held_out))
    assert [kind for kind, _ in chosen] == [*held_out] * 2
    assert len({text for _, text in chosen}) == len(chosen)
    assert all(text in held_out[kind] for kind, text in chosen)


def test_a_report_says_what_was_stopped_and_survives_json(tmp_path: Path) -> None:
    made = _bench([_sample(VERIFIER_ONLY, 0, 1.0), _sample("a | b", 0, 2.0)])
    assert from_json(to_json([made])) == [made]
    assert (
        asdict(made)["samples"][1]["contender"]
        in json.loads(to_json([made]))["benches"][0]["samples"][1].values()
    )
    report = markdown([made])
    assert "Incomplete" in report
    assert "a \\| b" in report
    write_whole(tmp_path / "report", report)
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


# ---- random weights at real shapes -------------------------------------------------------------------------


def test_a_pair_of_shapes_accepts_about_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded, one vocabulary for both, and colder or hotter until its two models agree so much."""
    small = shapes._shape("llama", (32, 1, 4, 2, 64, 400), False)
    monkeypatch.setitem(shapes.SHAPES, "small", small)
    monkeypatch.setitem(shapes.SHAPES, "large", small | {"vocab_size": 403, "num_hidden_layers": 2})
    target = torch.device("cpu"), torch.float32
    pair, twin = (shapes.shape_pair("small", "large", *target) for _ in range(2))
    assert pair.vocabulary_size == 400
    weights = zip(pair.verifier.parameters(), twin.verifier.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)
    for wanted in (0.5, 0.8):
        temperature = shapes.find_temperature(pair, wanted, _ignore)
        options: dict[str, Any] = {"method": "speed", "lenience": 0.0, "temperature": temperature, "seed": 5}
        request = Request(prompt="abc", max_new_tokens=60, return_logits=True, raw=True, **options)
        run = Engine(pair).generate(request)[0]
        assert shapes.agreement(run.drafter_logits, run.verifier_logits, temperature) == pytest.approx(
            wanted, abs=0.1
        )
    with pytest.raises(RequestError, match="no shape 'huge'"):
        shapes.shape_pair("small", "huge", *target)


def test_more_agreement_wants_more_heat() -> None:
    generator = torch.Generator().manual_seed(3)
    drafter, verifier = (torch.randn(5, 50, generator=generator) * 2 for _ in range(2))
    found = [shapes.temperature_for(drafter, verifier, wanted) for wanted in (0.3, 0.6, 0.9)]
    assert found == sorted(found)
    assert shapes.agreement(drafter, verifier, found[1]) == pytest.approx(0.6, abs=1e-3)
